"""The driver: what an action says is done, also when it is folded again."""

from __future__ import annotations

from stepgraph.v1 import event_pb2
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.inputs import Cancel
from stepgraph_server.core.node_facts import recorded_done
from stepgraph_server.core.steps import _record_done, with_answer
from tests.support import core_reports as reports
from tests.support.core_pieces import activation_of, compiled, json, started, text

TOOL = compiled('nodes: [{id: a, tool_call: {tool_name: t, args_template: "{\\"n\\": 1}"}}]')


def test_what_is_recorded_of_an_end_is_read_again() -> None:
    done = Done(value=text("v"), writes=(("a", json("1")), ("b", text("2")), ("gone", None)))
    fact = event_pb2.NodeCompleted()
    _record_done(fact, done)
    assert recorded_done(fact) == done
    empty = event_pb2.NodeCompleted()
    _record_done(empty, Done())
    assert recorded_done(empty) == Done()


def test_an_answer_is_written_before_what_the_action_writes() -> None:
    activation = activation_of(TOOL, "a")
    done = Done(writes=(("x", text("action")),))
    assert with_answer(activation, done) is done
    activation.answer = reports.answer("proceed_with", ['variables={"x": "answer"}', "message=hi"])
    full = with_answer(activation, done)
    assert [name for name, _ in full.writes][-2:] == ["x", "x"]
    assert full.messages[0].content[0].text.text == "hi"


def test_a_node_of_a_run_that_stops_does_not_go_on() -> None:
    run = started(TOOL)
    run.happen(Cancel(reason="stop"))
    assert not run.state.final
    assert [event.WhichOneof("kind") for event in run.events][-1] == "run_stopping"
