from __future__ import annotations

import json

import pytest

from stepgraph.v1 import conversation_pb2, llm_pb2, value_pb2
from stepgraph.v1 import state_pb2 as pb
from stepgraph_server.core import schemas
from stepgraph_server.core.decisions import (
    OfferedTool,
    delegate_definition,
    filter_passes,
    judge_call,
    parse_decision,
    reply_text,
    switch_paradigm_definition,
)


def text(content: str) -> conversation_pb2.ContentBlock:
    return conversation_pb2.ContentBlock(text=conversation_pb2.TextBlock(text=content))


def call(name: str, args: object = None, call_id: str = "c1") -> conversation_pb2.ContentBlock:
    written = args if isinstance(args, str) else json.dumps(args or {})
    block = conversation_pb2.ToolCallBlock(id=call_id, name=name, args=written)
    return conversation_pb2.ContentBlock(tool_call=block)


def reply(*blocks: conversation_pb2.ContentBlock) -> conversation_pb2.Message:
    return conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, content=blocks)


DELEGATE = {"agent_kind": "coder", "task": "mend it"}


class TestParsing:
    def test_text_is_an_answer(self) -> None:
        assert parse_decision(reply(text("a"), text("b"))).direct_answer.text == "ab"

    def test_nothing_is_an_empty_answer(self) -> None:
        assert parse_decision(reply()).WhichOneof("kind") == "direct_answer"

    def test_calls_are_kept_in_order_and_counted(self) -> None:
        decision = parse_decision(
            reply(text("so:"), call("b", call_id="1"), call("a", call_id="2"))
        )
        assert decision.tool_calls.count == 2
        assert [each.id for each in decision.tool_calls.calls] == ["1", "2"]

    def test_a_call_of_delegate_asks_for_an_agent(self) -> None:
        decision = parse_decision(reply(call("delegate", DELEGATE, "c7")))
        expected = pb.GraphDecision.Delegate(agent_kind="coder", task="mend it", call_id="c7")
        assert decision.delegate == expected

    def test_a_call_of_switch_paradigm_asks_for_another_one(self) -> None:
        decision = parse_decision(reply(call("switch_paradigm", {"paradigm": "plan"}, "c7")))
        expected = pb.GraphDecision.SwitchParadigm(paradigm="plan", call_id="c7")
        assert decision.switch_paradigm == expected

    def test_mixed_calls_are_decided_by_rank(self) -> None:
        """Delegate, then switch_paradigm, then any calls; wherever they stand in the reply."""
        switch = call("switch_paradigm", {"paradigm": "plan"})
        delegate = call("delegate", DELEGATE)
        every = parse_decision(reply(call("search"), switch, text("x"), delegate))
        assert every.WhichOneof("kind") == "delegate"
        two = parse_decision(reply(call("search"), switch, text("x")))
        assert two.WhichOneof("kind") == "switch_paradigm"

    def test_the_first_of_several_equal_wishes_counts(self) -> None:
        other = {**DELEGATE, "agent_kind": "tester"}
        decision = parse_decision(
            reply(call("delegate", DELEGATE, "c1"), call("delegate", other, "c2"))
        )
        assert decision.delegate.call_id == "c1"
        decision = parse_decision(
            reply(
                call("switch_paradigm", {"paradigm": "a"}, "c1"),
                call("switch_paradigm", {"paradigm": "b"}, "c2"),
            )
        )
        assert decision.switch_paradigm.call_id == "c1"

    @pytest.mark.parametrize(
        "args", ["not json", "[]", {}, {"agent_kind": "coder"}, {"agent_kind": "", "task": "x"},
                 {"agent_kind": 3, "task": "x"}, {"agent_kind": "a b", "task": "x"},
                 {"agent_kind": "coder", "task": 3}],
    )  # fmt: skip
    def test_a_delegation_that_makes_no_sense_is_an_ordinary_call(self, args: object) -> None:
        """So it gets an error as its result, and the model can mend it."""
        message = reply(call("delegate", args), call("delegate", DELEGATE, "c2"))
        assert parse_decision(message).delegate.call_id == "c2"
        decision = parse_decision(reply(call("delegate", args)))
        assert [each.name for each in decision.tool_calls.calls] == ["delegate"]
        assert judge_call(decision.tool_calls.calls[0], {}) is not None

    @pytest.mark.parametrize("args", ["nope", {}, {"paradigm": 1}, {"paradigm": ""}])
    def test_a_switch_that_makes_no_sense_is_an_ordinary_call(self, args: object) -> None:
        decision = parse_decision(reply(call("switch_paradigm", args)))
        assert decision.WhichOneof("kind") == "tool_calls"
        assert judge_call(decision.tool_calls.calls[0], {}) is not None

    def test_a_paradigm_that_there_is_not_is_told_to_the_model(self) -> None:
        message = reply(call("switch_paradigm", {"paradigm": "dream"}))
        assert parse_decision(message).HasField("switch_paradigm")
        decision = parse_decision(message, paradigms=["plan", "act"])
        assert decision.WhichOneof("kind") == "tool_calls"
        definition = switch_paradigm_definition(["plan", "act"])
        offered = {
            "switch_paradigm": OfferedTool(
                name="switch_paradigm", input_schema=definition.input_schema
            )
        }
        problem = judge_call(decision.tool_calls.calls[0], offered)
        assert problem is not None
        assert '["plan","act"]' in problem

    def test_stored_text_is_left_out_of_the_text_of_a_reply(self) -> None:
        stored = conversation_pb2.TextBlock(stored=value_pb2.StoredValue(digest="sha256:00"))
        message = reply(text("a"), conversation_pb2.ContentBlock(text=stored), text("b"))
        assert reply_text(message) == "ab"


SCHEMA = json.dumps({"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]})
OFFERED = {
    "search": OfferedTool(name="search", input_schema=SCHEMA),
    "anything": OfferedTool(name="anything"),
}


def judged(name: str, args: str, offered: dict[str, OfferedTool] = OFFERED) -> str | None:
    block = conversation_pb2.ToolCallBlock(id="c1", name=name, args=args)
    return judge_call(block, offered)


class TestJudging:
    def test_a_call_that_fits_may_run(self) -> None:
        assert judged("search", '{"q": "x"}') is None

    def test_empty_arguments_are_an_empty_object(self) -> None:
        assert judged("anything", "") is None
        assert judged("search", "") is not None

    def test_an_unknown_tool_is_answered_with_what_there_is(self) -> None:
        problem = judged("serach", "{}")
        assert problem == 'There is no tool named "serach". There is: anything, search.'

    def test_no_more_than_twenty_names_are_listed(self) -> None:
        offered = {f"t{index:02}": OfferedTool(name=f"t{index:02}") for index in range(23)}
        problem = judged("nope", "{}", offered)
        assert problem is not None
        assert problem.endswith("t18, t19, and 3 more.")

    def test_without_tools_the_model_is_told_so(self) -> None:
        assert judged("search", "{}", {}) == (
            'There is no tool named "search"; no tools are available.'
        )

    def test_an_endless_name_is_cut(self) -> None:
        problem = judged("x" * 10_000, "{}")
        assert problem is not None
        assert len(problem) < 200

    @pytest.mark.parametrize("args", ["{", "nonsense", '{"q": NaN}', '{"q": 1, "q": 2}'])
    def test_arguments_that_are_not_json_are_refused(self, args: str) -> None:
        problem = judged("search", args)
        assert problem is not None
        assert problem.startswith("The arguments of search can't be used: they are not JSON")

    @pytest.mark.parametrize("args", ["[]", "3", "null", '"text"'])
    def test_arguments_must_be_an_object(self, args: str) -> None:
        assert judged("anything", args) == (
            "The arguments of anything can't be used: they are not a JSON object."
        )

    def test_arguments_that_break_the_schema_are_refused_with_the_place(self) -> None:
        assert judged("search", '{"q": 3}') == (
            "The arguments of search break its schema: $.q: expected string, got the number 3."
        )

    def test_a_schema_that_can_not_be_compiled_stops_nobody(self) -> None:
        offered = {"odd": OfferedTool(name="odd", input_schema='{"type": "nonsense"}')}
        assert judged("odd", "{}", offered) is None

    def test_reserved_tools_never_run(self) -> None:
        assert judged("delegate", json.dumps(DELEGATE)) is not None
        assert judged("switch_paradigm", '{"paradigm": "plan"}') is not None


class TestDefinitions:
    def test_their_schemas_take_what_the_parser_takes(self) -> None:
        assert schemas.check(delegate_definition().input_schema, {**DELEGATE}) is None
        assert schemas.check(delegate_definition().input_schema, {"task": "x"}) is not None
        definition = switch_paradigm_definition(["plan"])
        assert schemas.check(definition.input_schema, {"paradigm": "plan"}) is None
        assert schemas.check(definition.input_schema, {"paradigm": "act"}) is not None


class TestFilters:
    @pytest.mark.parametrize(
        ("allow", "deny", "passes"),
        [
            ([], [], False),
            (["*"], [], True),
            (["search"], [], True),
            (["sea*"], [], True),
            (["sea"], [], False),
            (["search.web*"], [], False),
            (["*"], ["search"], False),
            (["*"], ["se*"], False),
            (["other"], [], False),
            (["other", "search"], ["another"], True),
        ],
    )
    def test_a_name_passes_if_it_is_allowed_and_not_denied(
        self, allow: list[str], deny: list[str], passes: bool
    ) -> None:
        assert filter_passes(llm_pb2.ToolFilter(allow=allow, deny=deny), "search") is passes

    def test_an_absent_filter_lets_everything_pass(self) -> None:
        assert filter_passes(None, "search")
