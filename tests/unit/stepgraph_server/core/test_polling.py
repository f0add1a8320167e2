"""Programs, turn by turn. What a run of them looks like stands in the scenarios."""

from __future__ import annotations

from stepgraph.v1 import task_pb2, transition_pb2
from stepgraph_client.files import parse_graph
from stepgraph_server.core.graph import GraphDefaults, compile_graph
from stepgraph_server.core.inputs import GoOn, RunLimits, Yield
from stepgraph_server.core.polling import DEFAULT_MAX_TURNS
from tests.support.core_pieces import compiled, started, succeeded, world

GRAPH = compiled("nodes: [{id: a, step: {program: p}}]\n")


def _await(count: int) -> task_pb2.TaskResult:
    reply = transition_pb2.StepReply()
    for _ in range(count):
        reply.transition.await_effects.effects.add().tool.name = "t"
    return task_pb2.TaskResult(step=reply)


def _tool() -> task_pb2.TaskResult:
    result = task_pb2.TaskResult()
    result.tool.output.text = "ok"
    return result


def test_many_effects_are_started_over_many_decisions() -> None:
    """Others have their turn between them, and a restart in between goes on where it was."""
    played = world()
    played.limits = RunLimits(max_work_per_decision=1)
    run = started(GRAPH, played)
    decision = run.happen(succeeded("1/a/t0/poll", _await(5)))
    decisions = 1
    while Yield() in decision.commands:
        run.restart()
        decision = run.happen(GoOn())
        decisions += 1
    assert decisions > 2
    assert len(run.state.tasks) == 5


def test_a_program_without_a_cap_has_24_turns() -> None:
    run = started(GRAPH)
    for turn in range(DEFAULT_MAX_TURNS):
        run.happen(succeeded(f"1/a/t{turn}/poll", _await(1)))
        run.happen(succeeded(f"1/a/t{turn}/e0", _tool()))
    assert run.state.failure is not None
    assert run.state.failure.code == "MAX_TURNS"
    assert run.state.failure.details["turn"] == "24"


def test_a_turn_is_not_polled_without_a_budget() -> None:
    graph = compiled(
        """
nodes:
  - {id: a, delegate: {agent_kind: k, task_template: t}}
  - {id: b, step: {program: p}}
edges: [{from: a, to: b}]
"""
    )
    run = started(graph, token_limit=5)
    spent = task_pb2.TaskResult()
    spent.agent.usage.input_tokens = 5
    run.happen(succeeded("1/a/t0/e0", spent))
    assert run.state.failure is not None
    assert run.state.failure.code == "TOKEN_BUDGET_SPENT"


def test_a_default_model_that_can_not_be_filled_in_fails_the_node_and_ends_what_was_started() -> (
    None
):
    text = "name: g\nstart: a\ndefault_model: '{{gone}}'\nnodes: [{id: a, step: {program: p}}]\n"
    run = started(compile_graph(parse_graph(text).graph, GraphDefaults()))
    reply = transition_pb2.StepReply()
    reply.transition.await_effects.effects.add().tool.name = "t"
    reply.transition.await_effects.effects.add().llm.request.SetInParent()
    run.happen(succeeded("1/a/t0/poll", task_pb2.TaskResult(step=reply)))
    assert run.state.failure is not None
    assert run.state.failure.code == "TEMPLATE_FAILED"
    assert "effects[1].llm.request.model" in run.state.failure.message
    assert [
        event.task_cancelled.task_id for event in run.events if event.HasField("task_cancelled")
    ] == ["1/a/t0/e0"]
