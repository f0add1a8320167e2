"""The ends of nodes, folded: what their events do not say is what their actions would say again."""

from __future__ import annotations

from stepgraph.v1 import event_pb2, task_pb2
from stepgraph_server.core.node_facts import recorded_done
from stepgraph_server.core.run import fold
from tests.support.core_pieces import compiled, started, succeeded
from tests.support.core_run import RUN_ID


def test_what_an_action_gave_is_found_again_where_its_event_does_not_say_it() -> None:
    graph = compiled(
        'nodes: [{id: a, tool_call: {tool_name: t, args_template: "{}"}, output: x}]\n'
    )
    run = started(graph)
    result = task_pb2.TaskResult()
    result.tool.output.text = "ok"
    run.happen(succeeded("1/a/t0/e0", result))
    (done,) = [event.node_completed for event in run.events if event.HasField("node_completed")]
    assert not done.HasField("value")
    assert fold(RUN_ID, graph, run.events).variables["x"].text == "ok"


def test_what_an_expression_gave_is_read_from_its_event() -> None:
    fact = event_pb2.NodeCompleted()
    fact.update.variables["b"].text = "2"
    fact.update.variables["a"].text = "1"
    fact.update.delete_variables.append("c")
    done = recorded_done(fact)
    assert [name for name, _ in done.writes] == ["a", "b", "c"]
    assert done.writes[2][1] is None
    assert done.value is None
