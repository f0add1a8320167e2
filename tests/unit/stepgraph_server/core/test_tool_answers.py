"""What follows from answers about tools. The traces of whole runs stand in the scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.inputs import Answer, Pause, Unpause
from stepgraph_server.core.state import TaskStatus
from tests.support import core_reports as reports
from tests.support.core_pieces import compiled, started

if TYPE_CHECKING:
    from stepgraph.v1 import interrupt_pb2
    from tests.support.core_run import PlayedRun

GRAPH = compiled(
    "nodes: [{id: a, tool_call: {tool_name: t, args_template: '{}'}}]\napproval_filter: {allow: [t]}\n"
)
TASK = "1/a/t0/e0"


def asking() -> tuple[PlayedRun, str]:
    run = started(GRAPH)
    (name,) = run.state.questions
    return run, name


def say(run: PlayedRun, name: str, kind: str, *words: str) -> None:
    answer: interrupt_pb2.InterruptAnswer = reports.answer(kind, list(words))
    run.happen(Answer(interrupt_id=name, answer=answer, answered_by="anna"))


def test_a_yes_hands_the_task_out_and_writes_nothing() -> None:
    run, name = asking()
    assert (run.state.asking, run.state.tasks[TASK].status) == (1, TaskStatus.ASKING)
    say(run, name, "proceed")
    assert (run.state.asking, run.state.tasks[TASK].status) == (0, TaskStatus.ASSIGNED)
    assert run.state.variables == {}


def test_a_no_is_the_result_of_the_call_and_the_node_ends_well() -> None:
    run, name = asking()
    say(run, name, "revise", "less")
    assert run.state.result is not None
    assert run.state.result.output.text == "A person did not approve this call: less"
    assert run.state.variables == {}
    assert run.state.carried.last_error is not None
    assert run.state.carried.last_error.code == "TOOL_ERROR"


def test_in_a_paused_run_a_yes_waits_and_an_abort_does_not() -> None:
    """Stopping is what a person wants of it, and what a cancel does to a paused run as well."""
    run, name = asking()
    run.happen(Pause(reason=""))
    say(run, name, "proceed")
    assert run.state.tasks[TASK].status is TaskStatus.QUEUED
    run.happen(Unpause())
    assert run.state.tasks[TASK].status is TaskStatus.ASSIGNED
    other, name = asking()
    other.happen(Pause(reason=""))
    say(other, name, "abort")
    assert other.state.failure is not None
    assert other.state.failure.message == "'a': a person aborted at the call of t"
