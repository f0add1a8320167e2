"""A live view is lines that stay, and below them where the run is now. The screen is that of a terminal emulator."""

from __future__ import annotations

import asyncio
import io

import pyte
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console

from stepgraph.v1 import event_pb2 as pb
from stepgraph.v1.event_pb2 import TransientEvent
from stepgraph.v1.run_pb2 import GraphVersion
from stepgraph.v1.task_pb2 import TaskAssignment, TaskProgress
from stepgraph_client.command import live
from stepgraph_client.command.live import LiveView
from tests.support.fake_server import run_event

TASK = "1/think/t0/e0"


class Screen:
    """A terminal of a size, and a view on it."""

    def __init__(self, width: int = 60, height: int = 24) -> None:
        self._written = io.StringIO()
        console = Console(
            file=self._written,
            width=width,
            height=height,
            force_terminal=True,
            soft_wrap=True,
            highlight=False,
            _environ={"TERM": "xterm"},
        )
        self._pyte = pyte.Screen(width, height)
        self._stream = pyte.Stream(self._pyte)
        self.now_s = 10.0
        self.view = LiveView(console, now_s=lambda: self.now_s)

    @property
    def lines(self) -> list[str]:
        self._stream.feed(self._written.getvalue().replace("\n", "\r\n"))
        self._written.seek(0)
        self._written.truncate()
        return [line.rstrip() for line in self._pyte.display if line.strip()]

    async def after(self, *events) -> list[str]:
        async with self.view.running():
            for event in events:
                self.view.print(event)
            self.view.draw()
            return self.lines


def at(second: int, **kind):
    return run_event(time=Timestamp(seconds=second), **kind)


def begun(*more):
    return (
        at(1, run_started=pb.RunStarted(run_id="r", graph=GraphVersion(name="g", version=1))),
        at(2, superstep_started=pb.SuperstepStarted(superstep=1, nodes=["think"])),
        *more,
    )


def scheduled(executor_id: str = "e", task_id: str = TASK):
    task = pb.TaskScheduled(task_id=task_id, label="llm m")
    if executor_id:
        task.assignment.CopyFrom(TaskAssignment(attempt=1, executor_id=executor_id))
    return at(3, task_scheduled=task)


def text(piece: str, task_id: str = TASK) -> TransientEvent:
    progress = TaskProgress(text=TaskProgress.TextDelta(text=piece))
    return TransientEvent(task_id=task_id, attempt=1, progress=progress)


async def test_below_the_lines_stands_where_the_run_is() -> None:
    shown = await Screen().after(*begun(scheduled()))
    assert shown[:3] == ["run r of g@1", "1. think", "  think · llm m → e"]
    assert shown[3].startswith("── running · superstep 1 · 9 s ──")
    assert shown[4:6] == ["   think", " ⠋ think · llm m  7 s  at e"]


async def test_when_it_is_left_only_the_lines_are_left() -> None:
    screen = Screen()
    await screen.after(*begun(scheduled()))
    assert screen.lines == ["run r of g@1", "1. think", "  think · llm m → e"]


async def test_text_is_shown_as_it_streams_and_stays() -> None:
    screen = Screen()
    done = pb.TaskCompleted(task_id=TASK, attempt=1)
    async with screen.view.running():
        for event in begun(scheduled(), text("one\ntw")):
            screen.view.print(event)
        screen.view.draw()
        first = screen.lines
        screen.view.print(text("o"))
        screen.view.draw()
        second = screen.lines
        screen.view.print(at(4, task_completed=done))
        screen.view.draw()
        third = screen.lines
    assert first[3:5] == ["  │ one", "  │ tw"]
    assert second[3:5] == ["  │ one", "  │ two"]
    assert third[3:6] == ["  │ one", "  │ two", "  think · llm m: done"]


async def test_two_streams_do_not_mix() -> None:
    """Each has its own line, and goes on where it was."""
    other = "1/look/t0/e0"
    shown = await Screen().after(
        *begun(scheduled(), scheduled(task_id=other)),
        *(text("a"), text("b", other), text("a\n"), text("b", other)),
    )
    assert "  │ aa" in shown
    assert "  │ bb" in shown


async def test_what_a_run_waits_for_is_shown() -> None:
    opened = pb.InterruptOpened()
    opened.question.interrupt_id = "q"
    opened.question.node_id = "ask"
    opened.question.reason.human.prompt = "Deploy?"
    shown = await Screen(height=60).after(
        *begun(scheduled(executor_id=""), at(4, interrupt_opened=opened))
    )
    assert " ◌ think · llm m  7 s  waits for an executor with room" in shown
    assert shown[-1] == " ? ask: Deploy?"


async def test_many_tasks_are_counted_and_the_view_stays_small() -> None:
    tasks = [scheduled(task_id=f"1/n{n}/t0/e0") for n in range(20)]
    shown = await Screen(height=60).after(*begun(*tasks))
    assert shown[-1] == "   and 14 more tasks"
    screen = Screen(height=24)
    await screen.after(*begun(*tasks))
    assert len(list(screen.view._lines())) <= 8


@pytest.mark.parametrize("width", [30, 40, 200])
async def test_nothing_is_wider_than_the_terminal(width) -> None:
    """And a little less, or a ^C behind it would move it."""
    screen = Screen(width)
    await screen.after(*begun(scheduled(), text("y" * 300)))
    assert all(line.cell_len <= width - 3 for line in screen.view._lines())


async def test_trouble_with_the_watching_is_shown_until_the_next_event() -> None:
    screen = Screen()
    async with screen.view.running():
        screen.view.say("lost the server")
        assert screen.lines[-1] == " ! lost the server"
        screen.view.print(begun()[0])
        screen.view.draw()
        assert "lost" not in "".join(screen.lines)


async def test_trouble_that_is_not_told_again_is_over() -> None:
    """A run that waits brings no event, also when the server is back."""
    screen = Screen()
    async with screen.view.running():
        screen.view.say("lost the server")
        screen.now_s += live.NOTICE_S - 1
        screen.view.say("lost the server", is_new=False)
        screen.now_s += live.NOTICE_S - 1
        screen.view.draw()
        assert screen.lines[-1] == " ! lost the server"
        screen.now_s += 2
        screen.view.draw()
        assert "lost" not in "".join(screen.lines)


async def test_it_is_drawn_again_by_itself(monkeypatch) -> None:
    """So seconds tick while nothing happens."""
    drawn = asyncio.Event()
    screen = Screen()
    count = 0

    def draw() -> None:
        nonlocal count
        count += 1
        if count == 3:
            drawn.set()

    monkeypatch.setattr(live, "PERIOD_S", 0.001)
    monkeypatch.setattr(screen.view, "draw", draw)
    async with asyncio.timeout(5), screen.view.running():
        await drawn.wait()


async def test_a_watch_that_began_in_the_middle_says_no_more_than_it_knows() -> None:
    shown = await Screen().after(begun()[1])
    assert shown == ["1. think", "… watching", "   think"]


async def test_an_age_that_is_not_known_is_left_out() -> None:
    """Of an event without a time, or of a server whose clock is ahead."""
    for second in (0, 99):
        task = pb.TaskScheduled(task_id=TASK, label="llm m")
        shown = await Screen().after(*begun(at(second, task_scheduled=task)))
        assert shown[-1] == " ◌ think · llm m  waits for an executor with room"


def test_ages_are_by_the_clock_of_the_day() -> None:
    assert live._now_s() > 1_700_000_000
