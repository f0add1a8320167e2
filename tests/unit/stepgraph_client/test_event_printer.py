"""A run's events, written as they come."""

from __future__ import annotations

import io

from rich.console import Console

from stepgraph.v1 import event_pb2 as pb
from stepgraph.v1.event_pb2 import RunEvent, TransientEvent
from stepgraph.v1.failure_pb2 import Failure
from stepgraph.v1.task_pb2 import TaskProgress
from stepgraph_client.event_printer import EventPrinter, visible

TASK = "1/think/t0/e0"
FAILURE = Failure(code="BAD", message="it broke", source="act")


def scheduled(**more: object) -> RunEvent:
    task = pb.TaskScheduled(task_id=TASK, label="llm m", **more)
    return RunEvent(task_scheduled=task)


def shown(text: str, kind: str = "text", attempt: int = 1) -> TransientEvent:
    progress = TaskProgress()
    getattr(progress, kind).text = text
    return TransientEvent(task_id=TASK, attempt=attempt, progress=progress)


def printed(*events: RunEvent | TransientEvent, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(
        file=file,
        force_terminal=terminal,
        soft_wrap=True,
        highlight=False,
        color_system="standard" if terminal else None,
        # Whatever the environment of the tests says.
        no_color=not terminal,
    )
    printer = EventPrinter(console)
    for event in events:
        printer.print(event)
    printer.end()
    return file.getvalue()


def test_deltas_run_on_and_are_ended_before_the_next_line() -> None:
    text = printed(
        scheduled(),
        shown("Sun"),
        shown("ny.\nWarm."),
        shown(""),
        RunEvent(run_unpaused=pb.RunUnpaused()),
    )
    assert text == ("  think · llm m waits to be given out\n  │ Sunny.\n  │ Warm.\ngoes on\n")


def test_streams_that_come_at_once_are_kept_apart() -> None:
    other = shown("B")
    other.task_id = "1/other/t0/e0"
    assert printed(shown("A"), other, shown("A")) == "  │ A\n  │ B\n  │ A\n"


def test_a_terminal_gets_colours_and_a_pipe_does_not() -> None:
    event = RunEvent(run_failed=pb.RunFailed(failure=FAILURE))
    assert "\x1b[31m" in printed(event, terminal=True)
    assert "\x1b" not in printed(event)


def test_lines_are_never_wrapped_because_commands_are_copied(capsys) -> None:
    long = RunEvent(run_paused=pb.RunPaused(reason="x" * 300))
    EventPrinter().print(long)
    assert capsys.readouterr().out.count("\n") == 1


def test_what_runs_show_cannot_steer_the_terminal() -> None:
    assert visible("plain ü") == "plain ü"
    assert visible("a\x1b[2J\tb\n\x07") == "a\\x1b[2J\tb\n\\x07"
    event = RunEvent(run_paused=pb.RunPaused(reason="[red]not markup[/red] \x1b]0;title\x07"))
    assert "[red]not markup[/red] \\x1b]0;title\\x07" in printed(event, terminal=True)


def test_lines_are_folded_on_a_terminal_alone() -> None:
    event = RunEvent(run_paused=pb.RunPaused(reason="for a while"))
    for is_terminal, count in ((True, 2), (False, 1)):
        console = Console(
            file=io.StringIO(),
            width=36,
            force_terminal=is_terminal,
            no_color=True,
            soft_wrap=True,
            _environ={},
        )
        EventPrinter(console).print(event)
        assert len(console.file.getvalue().splitlines()) == count
