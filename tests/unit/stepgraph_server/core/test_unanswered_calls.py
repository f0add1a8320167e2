"""What models read of calls that have no result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2, task_pb2
from stepgraph_server.core.actions.messages import refused_call
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.state import CallNote
from stepgraph_server.core.unanswered_calls import after_failure, after_stop
from tests.support.core_pieces import activation_of, compiled, started, succeeded
from tests.support.core_reports import result

if TYPE_CHECKING:
    from tests.support.core_run import PlayedRun

GRAPH = compiled(
    "nodes: [{id: a, llm_infer: {include_tool_definitions: true}}, {id: b, run_requested_tools: {}}]\n"
    "edges: [{from: a, to: b}]\napproval_filter: {allow: [pay]}\n"
)


def test_each_call_says_what_became_of_it() -> None:
    activation = activation_of(GRAPH, "b")
    done = task_pb2.TaskResult()
    done.tool.output.text = "x"
    failed = failure_pb2.Failure(code="BUSY", message="later")
    activation.call_ids = ["c1", "c2", "c3", "c4", ""]
    activation.results = [done, refused_call("denied"), failed, None, None]
    assert after_stop(activation, "enough") == (
        CallNote(
            "c1", "It ran, but its result was not taken over. Cancelled: enough", denied=False
        ),
        CallNote("c2", "denied", denied=False),
        CallNote("c3", "BUSY: later", denied=False),
        CallNote("c4", "Cancelled: enough", denied=False),
    )
    assert after_failure(activation, failed)[3] == CallNote("c4", "BUSY: later", denied=False)


def read(run: PlayedRun) -> list[str]:
    return [
        message.content[0].tool_result.content[0].text.text
        for message in run.state.conversation.noted_results()
    ]


def test_a_run_that_is_cancelled_tells_who_continues_it_what_became_of_its_calls() -> None:
    run = started(GRAPH)
    run.world.offer("pay", "")
    run.world.offer("look", "")
    run = started(GRAPH, run.world)
    run.happen(succeeded("1/a/t0/e0", result("llm", ["call=look {}", "call=pay {}"])))
    run.happen(Cancel(reason="enough"))
    assert read(run) == []
    run.happen(succeeded("2/b/t0/e0", result("tool", ["seen"])))
    assert run.state.final
    assert read(run) == [
        "It ran, but its result was not taken over. Cancelled: enough",
        "Cancelled: enough",
    ]
