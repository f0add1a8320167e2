"""What facts about tasks leave in the state."""

from __future__ import annotations

from stepgraph.v1 import task_pb2
from stepgraph_server.core.inputs import TimePassed
from stepgraph_server.core.instants import SECOND
from stepgraph_server.core.state import MAX_REMEMBERED_TASKS
from tests.support.core_pieces import compiled, started, succeeded, world
from tests.support.core_run import START

LOOP = compiled(
    """
max_iterations: 70
nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}}]
edges: [{from: a, to: a}]
"""
)
CAPPED = compiled(
    """
nodes:
  - {id: a, llm_infer: {include_tool_definitions: true}}
  - {id: act, run_requested_tools: {max_concurrency: 1}, limits: {total: 5s}}
edges: [{from: a, to: act}]
"""
)


def test_only_the_last_finished_tasks_are_remembered() -> None:
    run = started(LOOP)
    result = task_pb2.TaskResult()
    result.tool.output.text = "x"
    while not run.state.final:
        (task_id,) = run.state.tasks
        run.happen(succeeded(task_id, result))
    assert len(run.state.remembered) == MAX_REMEMBERED_TASKS
    assert "1/a/t0/e0" not in run.state.remembered


def test_what_a_cap_holds_back_ends_after_what_holds_it_back() -> None:
    played = world()
    played.offer("t", "{}")
    run = started(CAPPED, played)
    reply = task_pb2.TaskResult()
    for _ in range(3):
        reply.llm.message.content.add().tool_call.name = "t"
    run.happen(succeeded("1/a/t0/e0", reply))
    assert [task.held for task in run.state.tasks.values()] == [False, True, True]
    run.now = START + 6 * SECOND
    run.happen(TimePassed())
    failed = [event.task_failed for event in run.events if event.HasField("task_failed")]
    assert [fact.task_id[-2:] for fact in failed] == ["e0", "e1", "e2"]
    assert {fact.failure.code for fact in failed} == {"TOTAL_LIMIT"}
    assert run.state.final
