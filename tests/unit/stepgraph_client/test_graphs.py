from __future__ import annotations

from datetime import UTC, datetime

import pytest

from stepgraph.v1.graph_pb2 import GraphRef, NodeAction, NodeJoin, Reducer, StateGraph
from stepgraph.v1.llm_pb2 import ToolDefinition, ToolFilter
from stepgraph.v1.policy_pb2 import JoinPolicy
from stepgraph_client.conditions import has_tool_calls, is_final_answer
from stepgraph_client.graphs import Graph, GraphBuildError, context, graph_ref
from stepgraph_client.policies import limits, must_call, only, question, retry


def react() -> Graph:
    g = Graph("react", default_model="m")
    g.llm("think", tools=True)
    g.run_tools("act")
    g.assign("done")
    g.edge("think", "act", when=has_tool_calls())
    g.edge("act", "think")
    g.edge("think", "done", when=is_final_answer())
    g.start("think")
    g.end("done")
    return g


def test_a_small_agent_reads_as_it_is_drawn() -> None:
    built = react().build()
    assert [node.id for node in built.nodes] == ["think", "act", "done"]
    assert [(edge.source, edge.target) for edge in built.edges] == [
        ("think", "act"),
        ("act", "think"),
        ("think", "done"),
    ]
    assert (built.entry_point, list(built.terminal_nodes)) == ("think", ["done"])
    assert built.nodes[0].action.llm_infer.include_tool_definitions
    assert not built.nodes[1].action.run_requested_tools.HasField("filter")


def test_a_graph_takes_its_defaults() -> None:
    built = Graph(
        "g",
        default_model="m",
        max_iterations=7,
        time_limit="1h",
        retry=retry(max_tries=2),
        limits=limits(run="1m"),
        approval=["deploy*"],
        metadata={"owner": "me"},
    ).build()
    assert (built.max_iterations, built.time_limit.seconds, built.retry.max_tries) == (7, 3600, 2)
    assert built.limits.run.seconds == 60
    assert list(built.approval_filter.allow) == ["deploy*"]
    assert built.metadata["owner"] == "me"


def test_all_tools_may_need_a_person_or_none() -> None:
    assert list(Graph("g", approval=True).build().approval_filter.allow) == ["*"]
    assert not Graph("g", approval=False).build().HasField("approval_filter")


def every_node() -> Graph:
    g = Graph("every")
    g.llm("llm")
    g.tool("tool", "search", {"q": "{{input}}"})
    g.delegate("delegate", "writer", "write")
    g.approval("approval", "Sure?", ["yes", "no"])
    g.check("check", "has_tool_calls")
    g.switch_paradigm("paradigm", "careful")
    g.run_tools("act")
    g.assign("assign", {"n": "1"})
    g.step("step", "plan")
    g.map("map", "vars.items", body="llm")
    g.subgraph("sub", "other@2")
    g.sleep("sleep", "10s")
    g.wait_signal("wait", "go")
    return g


def test_there_is_a_method_for_every_action_of_the_schema() -> None:
    kinds = {node.action.WhichOneof("kind") for node in every_node().build().nodes}
    assert kinds == set(NodeAction.DESCRIPTOR.fields_by_name)


def test_every_option_of_a_node_arrives() -> None:
    g = Graph("g")
    g.assign(
        "a",
        interrupt=question("Sure?"),
        retry=retry(max_tries=1),
        limits=limits(total="1m"),
        join="all",
        output="result",
        selector={"gpu": "yes"},
        metadata={"note": "x"},
        answers="route",
        append=False,
    )
    node = g.build().nodes[0]
    assert node.interrupt
    assert node.interrupt_options.description == "Sure?"
    assert node.join == NodeJoin.NODE_JOIN_ALL
    assert (node.output_variable, node.answers) == ("result", "route")
    assert (node.selector["gpu"], node.metadata["note"]) == ("yes", "x")
    assert (node.retry.max_tries, node.limits.total.seconds, node.append) == (1, 60, 2)


def test_a_model_node_takes_all_that_a_model_call_has() -> None:
    g = Graph("g")
    g.llm(
        "a",
        prompt="p",
        system_prompt="",
        model="m",
        tools=only("s"),
        streaming=True,
        temperature=0.0,
        max_tokens=5,
        thinking_budget=6,
        output_schema={"type": "object"},
        tool_choice=must_call("s"),
        context=context(first=1, last=0, max_bytes=9),
        provider_options={"x": 1},
    )
    call = g.build().nodes[0].action.llm_infer
    assert (call.prompt_template, call.model, call.use_streaming) == ("p", "m", True)
    assert call.HasField("system_prompt_override")
    assert call.HasField("temperature")
    assert list(call.tool_filter_override.allow) == ["s"]
    assert (call.max_tokens, call.thinking_budget) == (5, 6)
    assert (call.output_schema, call.provider_options) == ('{"type": "object"}', '{"x": 1}')
    assert call.context.HasField("last_messages")
    assert call.tool_choice.named.name == "s"


@pytest.mark.parametrize(
    ("tools", "included", "allow"),
    [(True, True, None), (False, False, None), ("s", True, ["s"]), (["a", "b"], True, ["a", "b"])],
)
def test_tools_are_all_none_or_those_that_are_named(tools, included, allow) -> None:
    g = Graph("g")
    g.llm("a", tools=tools)
    call = g.build().nodes[0].action.llm_infer
    assert call.include_tool_definitions == included
    assert call.HasField("tool_filter_override") == (allow is not None)
    assert list(call.tool_filter_override.allow) == (allow or [])


def test_a_tool_without_arguments_performs_the_carried_call() -> None:
    g = Graph("g")
    g.tool("a", "search")
    g.tool("b", "search", {})
    first, second = (node.action.tool_call for node in g.build().nodes)
    assert not first.HasField("args_template")
    assert second.args_template == "{}"


def test_a_question_of_an_approval_does_not_ask_twice() -> None:
    g = Graph("g")
    g.approval("a", "Sure?", {"y": "Yes"}, interrupt=question(deadline="1h"))
    node = g.build().nodes[0]
    assert not node.interrupt
    assert node.interrupt_options.deadline.seconds == 3600
    assert node.action.human_approval.options[0].label == "Yes"


def test_a_step_takes_its_input_and_what_it_wants_to_see() -> None:
    g = Graph("g")
    g.step(
        "a", "plan", input={"x": "{{y}}"}, max_turns=3, variables=["v"], include_conversation=True
    )
    step = g.build().nodes[0].action.step
    assert (step.input_template, step.max_turns) == ('{"x": "{{y}}"}', 3)
    assert (list(step.variables), step.include_conversation) == (["v"], True)


def test_calls_that_are_performed_have_a_filter_and_bounds() -> None:
    g = Graph("g")
    g.run_tools("a", ["search"], max_concurrency=2, max_calls=3)
    action = g.build().nodes[0].action.run_requested_tools
    assert (list(action.filter.allow), action.max_concurrency, action.max_calls) == (
        ["search"],
        2,
        3,
    )


def test_a_map_runs_a_node_or_a_program_and_not_both() -> None:
    g = Graph("g")
    g.map("a", "vars.l", program="p", join_policy="first", max_concurrency=2, drop_failed=True)
    action = g.build().nodes[0].action.map
    assert (action.body.program, action.join) == ("p", JoinPolicy.JOIN_POLICY_FIRST)
    assert (action.max_concurrency, action.drop_failed) == (2, True)
    with pytest.raises(GraphBuildError, match="either body"):
        g.map("b", "vars.l")
    with pytest.raises(GraphBuildError, match="either body"):
        g.map("c", "vars.l", body="a", program="p")


def test_a_subgraph_is_a_reference_a_builder_or_the_graph_itself() -> None:
    g = Graph("g")
    g.subgraph("a", None, max_iterations=3)
    g.subgraph("b", react(), input={"q": "{{x}}"}, output_variables={"y": "z"}, time_limit="1m")
    first, second = (node.action.subgraph for node in g.build().nodes)
    assert first.graph.WhichOneof("kind") == "same_version"
    assert second.graph.definition.name == "react"
    assert (second.input["q"], second.output["y"], second.time_limit.seconds) == ("{{x}}", "z", 60)


def test_a_sleep_lasts_or_ends_at_a_point_in_time() -> None:
    g = Graph("g")
    g.sleep("a", datetime(2026, 1, 31, tzinfo=UTC))
    assert g.build().nodes[0].action.sleep.until.ToJsonString() == "2026-01-31T00:00:00Z"
    with pytest.raises(GraphBuildError, match="time zone"):
        g.sleep("b", datetime(2026, 1, 31))  # noqa: DTZ001


def test_a_wait_for_signals_has_its_limits() -> None:
    g = Graph("g")
    g.wait_signal("a", "go", "{{id}}", 3, "5m")
    wait = g.build().nodes[0].action.wait_signal
    assert (wait.correlation, wait.count, wait.timeout.seconds) == ("{{id}}", 3, 300)


def test_a_node_may_have_an_action_that_one_made_oneself() -> None:
    g = Graph("g")
    g.node("a", NodeAction(assign=NodeAction.Assign()), output="x")
    assert g.build().nodes[0].output_variable == "x"


def test_paradigms_reducers_and_graph_tools_are_part_of_a_graph() -> None:
    g = Graph("g")
    assert g.paradigm("careful", "Be careful.", tools=False) == "careful"
    g.paradigm("quick", tools=["search"])
    g.reducer("notes", "append")
    assert g.graph_tool(ToolDefinition(name="ask"), "helper") == "ask"
    built = g.build()
    assert built.paradigms["careful"].system_prompt == "Be careful."
    assert built.paradigms["careful"].HasField("tool_filter")
    assert built.paradigms["quick"].tool_filter == ToolFilter(allow=["search"])
    assert built.reducers["notes"] == Reducer.REDUCER_APPEND
    assert built.tools[0].graph.reference == "helper"


def test_an_unknown_reducer_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(GraphBuildError, match="append, max, merge"):
        Graph("g").reducer("x", "push")


def test_two_nodes_of_one_id_are_refused() -> None:
    g = Graph("g")
    g.assign("a")
    with pytest.raises(GraphBuildError, match="has a node 'a' already"):
        g.assign("a")


def test_edges_have_ids_caps_and_handoffs() -> None:
    g = Graph("g")
    g.edge("a", "b", id="e", max_traversals=3)
    g.edge("a", "c", handoff=True)
    g.chain("x", "y", "z")
    first, second, *rest = g.build().edges
    assert (first.id, first.max_traversals, second.handoff) == ("e", 3, True)
    assert [(each.source, each.target) for each in rest] == [("x", "y"), ("y", "z")]


def test_without_a_start_the_first_node_is_it() -> None:
    g = Graph("g")
    g.assign("a")
    g.assign("b")
    assert g.build().entry_point == "a"


def test_what_was_built_does_not_change_any_more() -> None:
    g = Graph("g")
    g.assign("a")
    built = g.build()
    g.assign("b")
    assert len(built.nodes) == 1
    assert g.name == "g"


def test_a_graph_may_be_named_in_four_ways() -> None:
    assert graph_ref("react@3").reference == "react@3"
    assert graph_ref(react()).definition.name == "react"
    assert graph_ref(StateGraph(name="x")).definition.name == "x"
    given = GraphRef(reference="y")
    assert graph_ref(given) is given
