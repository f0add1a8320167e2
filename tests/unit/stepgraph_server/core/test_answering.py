"""Nodes that answer calls of models. Whole runs of it stand in the scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.answering import refusal, under_call
from tests.support.core_pieces import compiled, started, succeeded, text
from tests.support.core_reports import result

if TYPE_CHECKING:
    from tests.support.core_run import PlayedRun

TOOLS = 'tools: [{definition: {name: t, input_schema: \'{"type":"object"}\'}}]\n'
GRAPH = compiled(
    "nodes: [{id: a, llm_infer: {include_tool_definitions: true}}, {id: b, answers: t, append: none, step: p}]\n"
    f"edges: [{{from: a, to: b}}]\n{TOOLS}"
)


def asked(*calls: str) -> PlayedRun:
    run = started(GRAPH)
    run.happen(succeeded("1/a/t0/e0", result("llm", [f"call={call}" for call in calls])))
    return run


def test_the_first_open_call_of_its_tool_is_its_input() -> None:
    """The decision is handed on while the other call waits."""
    run = asked('t {"n":1}', 't {"n":2}')
    activation = run.state.activations["2/b"]
    assert activation.call is not None
    assert activation.call.id == "call_1_0_0"
    assert activation.given is not None
    assert activation.given.json == '{"n":1}'
    assert "input" not in run.state.variables
    done = under_call(run.state, activation, Done(value=text("v")))
    assert done.decision is not None
    (message,) = done.messages
    assert message.content[0].tool_result.call_id == "call_1_0_0"
    assert message.content[0].tool_result.content[0].text.text == "v"
    assert refusal(run.state, activation) is None


def test_a_node_without_a_call_is_like_any_other() -> None:
    run = asked("other {}")
    activation = run.state.activations["2/b"]
    assert activation.call is None
    done = Done(value=text("v"))
    assert under_call(run.state, activation, done) is done
    assert refusal(run.state, activation) is None


def test_what_says_nothing_is_done_and_what_went_wrong_is_an_error() -> None:
    run = asked("t {}")
    activation = run.state.activations["2/b"]
    quiet = under_call(run.state, activation, Done())
    assert quiet.decides
    assert quiet.decision is None
    assert quiet.messages[0].content[0].tool_result.content[0].text.text == "Done."
    bad = under_call(
        run.state, activation, Done(value=text("x"), error=failure_pb2.Failure(code="C"))
    )
    assert bad.messages[0].content[0].tool_result.is_error


def test_a_failure_is_told_to_the_model() -> None:
    """Its node has no way on, so the run ends; who continues it reads why the call has no result."""
    run = asked("t {}")
    failed = result("step", [])
    run.happen(succeeded("2/b/t0/poll", failed))
    assert run.state.final
    (message,) = run.state.conversation.noted_results()
    assert message.content[0].tool_result.call_id == "call_1_0_0"
