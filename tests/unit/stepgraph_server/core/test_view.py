"""What one node sees: the shared base with its own writes over it."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2, failure_pb2, state_pb2, value_pb2
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.expressions import Expression, ExpressionError
from stepgraph_server.core.reducers import ReducerError
from stepgraph_server.core.state import Carried, Delta
from stepgraph_server.core.templates import Template
from stepgraph_server.core.values import ValueNotReadable
from stepgraph_server.core.view import (
    View,
    decision_json,
    failure_json,
    settle,
    updated,
    with_messages,
    write,
)
from tests.support.core_pieces import activation_of, compiled, json, state_of, text

GRAPH = compiled(
    """
reducers: {log: append}
nodes:
  - {id: a, assign: {}}
  - {id: call, tool_call: {tool_name: t, args_template: "{}"}, output: out, append: none}
edges: [{from: a, to: call}]
"""
)


def view(delta: Delta | None = None, carried: Carried | None = None, **values: object) -> View:
    state = state_of(GRAPH, **values)  # type: ignore[arg-type]
    return View(state, carried or Carried(), delta or Delta())


def rendered(template: str, seen: View) -> str:
    return Template.compile(template).render(seen, max_bytes=1000)


def test_own_writes_hide_the_base_and_deletions_too() -> None:
    seen = view(Delta(overlay={"x": text("mine"), "y": None}), x=text("base"), y=text("base"))
    assert seen.variable("x") == text("mine")
    assert seen.variable("y") is None
    assert seen.variables() == {"x": text("mine")}


def test_templates_see_results_errors_and_decisions() -> None:
    carried = Carried(
        last_result=json('{"n": 1}'),
        last_error=failure_pb2.Failure(code="X", message="m"),
        decision=state_pb2.GraphDecision(
            direct_answer=state_pb2.GraphDecision.DirectAnswer(text="yes")
        ),
    )
    seen = view(carried=carried, empty=value_pb2.Value())
    template = "{{last_result.n}} {{last_error.code}} {{decision.text}} {{empty}}."
    assert rendered(template, seen) == "1 X yes ."
    assert list(seen.names()) == ["empty", "last_result", "last_error", "decision"]


@pytest.mark.parametrize(
    "value",
    [
        value_pb2.Value(blob=value_pb2.Blob(data=b"x")),
        value_pb2.Value(secret=value_pb2.Secret(name="k")),
        value_pb2.Value(stored=value_pb2.StoredValue(digest="d")),
    ],
    ids=["blob", "secret", "stored"],
)
def test_a_value_without_content_here_can_not_be_rendered(value: value_pb2.Value) -> None:
    with pytest.raises(ValueNotReadable):
        rendered("{{x}}", view(x=value))


def test_an_expression_gets_all_variables_if_it_needs_them_all() -> None:
    expression = Expression.compile("size(vars) == 2")
    assert expression.evaluate_bool(view(x=text("1"), y=text("2")).bindings(expression))


def test_the_last_message_may_be_the_nodes_own() -> None:
    expression = Expression.compile("last_message == 'own' && messages_count == 1")
    block = conversation_pb2.ContentBlock(text=conversation_pb2.TextBlock(text="own"))
    delta = Delta(messages=[conversation_pb2.Message(content=[block])])
    assert expression.evaluate_bool(view(delta).bindings(expression))


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (
            state_pb2.GraphDecision(
                delegate=state_pb2.GraphDecision.Delegate(agent_kind="k", task="t")
            ),
            {"kind": "Delegate", "agent_kind": "k", "task": "t"},
        ),
        (
            state_pb2.GraphDecision(
                switch_paradigm=state_pb2.GraphDecision.SwitchParadigm(paradigm="p")
            ),
            {"kind": "SwitchParadigm", "paradigm": "p"},
        ),
        (
            state_pb2.GraphDecision(
                tool_calls=state_pb2.GraphDecision.ToolCalls(
                    calls=[conversation_pb2.ToolCallBlock(id="1", name="t", args="nonsense")]
                )
            ),
            {"kind": "ToolCalls", "calls": [{"id": "1", "name": "t", "args": "nonsense"}]},
        ),
        (None, {}),
    ],
    ids=["delegate", "switch", "calls", "none"],
)
def test_every_field_of_a_decision_is_there(
    decision: state_pb2.GraphDecision | None, expected: dict[str, object]
) -> None:
    empty = {"kind": "", "text": "", "calls": [], "agent_kind": "", "task": "", "paradigm": ""}
    assert decision_json(decision) == empty | expected


def test_a_working_node_clears_the_error_and_writes_its_output() -> None:
    error = failure_pb2.Failure(code="X")
    activation = activation_of(GRAPH, "call", Carried(last_error=error))
    carried, delta = settle(state_of(GRAPH), activation, Done(value=text("result")))
    assert carried == Carried(last_result=text("result"))
    assert delta.overlay == {"out": text("result")}


def test_append_none_keeps_messages_out() -> None:
    done = Done(messages=(conversation_pb2.Message(),))
    assert not settle(state_of(GRAPH), activation_of(GRAPH, "call"), done)[1].messages


def test_a_node_that_does_not_work_hands_the_error_on() -> None:
    error = failure_pb2.Failure(code="X")
    activation = activation_of(GRAPH, "a", Carried(last_error=error))
    carried, delta = settle(state_of(GRAPH), activation, Done())
    assert carried.last_error == error
    assert delta is activation.delta


def test_who_hands_a_decision_on_hands_on_the_tools_that_it_was_made_with() -> None:
    decision = state_pb2.GraphDecision()
    activation = activation_of(GRAPH, "call", Carried(decision=decision, tools_digest="old"))
    state = state_of(GRAPH)
    kept, _ = settle(state, activation, Done(decision=decision, decides=True))
    cleared, _ = settle(state, activation, Done(decides=True))
    activation.tools_digest = "new"
    made, _ = settle(state, activation, Done(decision=state_pb2.GraphDecision(), decides=True))
    assert [kept.tools_digest, cleared.tools_digest, made.tools_digest] == ["old", "", "new"]


def test_writes_of_one_node_go_through_the_reducer_one_after_the_other() -> None:
    state, delta = state_of(GRAPH, log=json("[1]")), Delta()
    write(state, delta, "log", json("2"))
    write(state, delta, "log", json("[3]"))
    assert delta.overlay["log"] == json("[1,2,3]")
    write(state, delta, "log", None)
    write(state, delta, "log", json("4"))
    assert delta.overlay["log"] == json("[4]")


def test_a_write_that_does_not_fit_names_its_variable() -> None:
    with pytest.raises(ReducerError) as caught:
        write(state_of(GRAPH, log=text("no list")), Delta(), "log", json("1"))
    assert caught.value.variable == "log"


STORED = value_pb2.Value(
    stored=value_pb2.StoredValue(
        digest="sha256:" + "0" * 64, size_bytes=300_000, form=value_pb2.VALUE_FORM_JSON
    )
)


def test_a_stored_value_that_is_read_says_what_it_is_and_what_to_do() -> None:
    with pytest.raises(ValueNotReadable) as caught:
        rendered("see {{doc}}", view(doc=STORED))
    message = str(caught.value)
    assert message.startswith("doc is a stored value of 300000 bytes, JSON (sha256:0")
    assert "output_variable" in message
    with pytest.raises(ValueNotReadable, match="last_result is a stored value"):
        view(carried=Carried(last_result=STORED)).evaluate(Expression.compile("last_result"))


def test_a_stored_value_alone_is_handed_on_and_not_read() -> None:
    seen = view(carried=Carried(last_result=STORED), doc=STORED, plain=text("x"))
    assert seen.whole("{{doc}}") == STORED
    assert seen.whole("{{ last_result }}") == STORED
    for template in ("{{doc}}.", "doc", "", "{{plain}}", "{{nosuch?}}"):
        assert seen.whole(template) is None


def test_all_variables_are_listed_where_one_is_missing() -> None:
    with pytest.raises(ExpressionError) as caught:
        view(x=text("1"), y=text("2")).evaluate(Expression.compile("vars.nosuch"))
    assert caught.value.known == ("x", "y")


def test_an_expression_may_go_over_all_variables() -> None:
    seen = view(Delta(overlay={"z": text("3"), "y": None}), x=text("1"), y=text("2"))
    assert seen.evaluate(Expression.compile("size(vars)")) == 2
    assert dict(seen.bindings(Expression.compile("vars"))["vars"]) == {"x": "1", "z": "3"}  # type: ignore[call-overload]
    assert len(seen.bindings(Expression.compile("vars"))["vars"]) == 2  # type: ignore[arg-type]


def test_an_update_changes_what_it_names_and_nothing_before_it() -> None:
    state = state_of(GRAPH, log=json('["base"]'))
    activation = activation_of(GRAPH, "a", Carried(paradigm="calm"))
    activation.tools_digest = "tools"
    update = state_pb2.StateUpdate(
        variables={"log": text("x")},
        delete_variables=["gone"],
        paradigm="bold",
        should_terminate=True,
    )
    update.decision.direct_answer.text = "yes"
    update.messages.add(role=conversation_pb2.ROLE_USER)
    carried, delta = updated(state, activation, update)
    assert (carried.paradigm, carried.tools_digest) == ("bold", "tools")
    assert delta.overlay == {"log": json('["base","x"]'), "gone": None}
    assert (len(delta.messages), delta.terminate) == (1, True)
    assert activation.carried.paradigm == "calm"
    assert not activation.delta.writes


def test_a_node_that_stays_out_of_the_conversation_does_so_with_its_updates_too() -> None:
    update = state_pb2.StateUpdate()
    update.messages.add(role=conversation_pb2.ROLE_USER)
    _, delta = updated(state_of(GRAPH), activation_of(GRAPH, "call"), update)
    assert not delta.messages


def test_a_conversation_is_never_appended_to_for_a_view() -> None:
    conversation = state_of(GRAPH).conversation
    assert with_messages(conversation, []) is conversation
    longer = with_messages(
        conversation, [conversation_pb2.Message(role=conversation_pb2.ROLE_USER)]
    )
    assert (len(longer), len(conversation)) == (1, 0)


def test_a_failure_is_the_same_text_before_and_after_a_restart() -> None:
    """Whoever reads it from the journal has its details in an order of chance."""
    names = [f"detail_{number:02}" for number in range(20)]
    made = failure_pb2.Failure(details=dict.fromkeys(reversed(names), "x"))
    read = failure_pb2.Failure.FromString(made.SerializeToString())
    for failure in (made, read):
        tree = failure_json(failure)
        assert isinstance(tree, dict)
        assert list(tree["details"]) == names  # type: ignore[arg-type]  # it is a dict
