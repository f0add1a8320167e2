"""Watching runs from the command line, until they are over, time is up, or someone presses Ctrl-C.

Rules: Ctrl-C stops the watching and never a run, and says how to go on from the very next event. On a terminal one run is shown live; piped,
without colour, or as JSON it is lines and nothing else.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import click

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client.command.calling import ExitCode, Settings, as_command_error
from stepgraph_client.command.live import LiveView
from stepgraph_client.command.output import Output, console, plain, print_json_line, print_lines
from stepgraph_client.command.piecing import Piecing
from stepgraph_client.errors import StepgraphError
from stepgraph_client.event_printer import EventPrinter
from stepgraph_client.lines import Line, Piece
from stepgraph_client.render import Narrator
from stepgraph_client.watching import is_final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from rich.console import Console

    from stepgraph_client.client import Client
    from stepgraph_client.errors import Status
    from stepgraph_client.requests import RunFilterOptions
    from stepgraph_client.watching import Event, RunNews

_CODES = {
    "run_failed": ExitCode.RUN_FAILED,
    "run_cancelled": ExitCode.RUN_CANCELLED,
}


#: What a shell adds to the number of the signal that ended a command.
_SIGNALLED = 128


class _Shown(Protocol):
    """Where the events of one run go."""

    def print(self, event: Event) -> None:
        """Show an event."""
        ...

    def say(self, text: str, *, is_new: bool) -> None:
        """Tell of trouble with the watching itself; `is_new`: it has just begun."""
        ...


class _JsonLines:
    """One event, one line of JSON."""

    def print(self, event: Event) -> None:
        print_json_line(plain(event))

    def say(self, text: str, *, is_new: bool) -> None:
        if is_new:
            click.echo(text, err=True)


class _PlainLines:
    """What happens as lines for people, where nothing can be drawn anew."""

    def __init__(self, to: Console, command: str) -> None:
        self._printer = EventPrinter(to, command=command)

    def print(self, event: Event) -> None:
        self._printer.print(event)

    def say(self, text: str, *, is_new: bool) -> None:
        # Once, not at every try: a server that is replaced is away for many of them.
        if is_new:
            self._printer.end()
            click.echo(text, err=True)

    def end(self) -> None:
        self._printer.end()


@dataclass(slots=True, kw_only=True)
class Follow:
    """How far a watch has come: what to say if it is stopped, and how the run ended. `longest_s`: for how long to watch at most."""

    settings: Settings
    out: Output = field(default_factory=Output)
    run_id: str = ""
    after_sequence: int = 0
    longest_s: float | None = None
    exit_code: ExitCode = ExitCode.OK

    async def watch(self, client: Client, *, history_only: bool = False) -> None:
        """Print a run's events until it is over."""
        async with self._shown(history_only=history_only) as shown:

            def lost(status: Status, failures: int) -> None:
                trouble = status.message or status.code.name
                what = "lost the server" if status.lost else "the server has no room now"
                shown.say(f"{what} ({trouble}); trying again…", is_new=failures == 1)

            async for event in client.watch(
                self.run_id, self.after_sequence, history_only=history_only, on_lost=lost
            ):
                self._note(event)
                shown.print(event)

    @asynccontextmanager
    async def _shown(self, *, history_only: bool) -> AsyncIterator[_Shown]:
        if not self.out.is_for_people:
            yield _JsonLines()
            return
        to = self.out.console
        if is_live(to) and not history_only:
            view = LiveView(to, self.settings.command)
            async with view.running():
                yield view
            return
        lines = _PlainLines(to, self.settings.command)
        try:
            yield lines
        finally:
            lines.end()

    def _note(self, event: Event) -> None:
        if isinstance(event, RunEvent):
            self.after_sequence = event.sequence
            self.exit_code = _CODES.get(event.WhichOneof("kind") or "", ExitCode.OK)

    def stopped_text(self) -> str:
        """Return what to say when the watching was stopped."""
        if not self.run_id:
            return "Stopped watching."
        command = self.settings.command
        return (
            f"Stopped watching; the run goes on. To go on watching, or to stop the run:\n"
            f"  {command} runs watch {self.run_id} --after {self.after_sequence}\n"
            f"  {command} runs cancel {self.run_id}"
        )


class Watching(Protocol):
    """A watch that can be stopped."""

    settings: Settings
    longest_s: float | None
    exit_code: ExitCode

    def stopped_text(self) -> str:
        """Return what to say when it was stopped."""
        ...


def is_live(to: Console) -> bool:
    """Say whether a view can be drawn anew: on a terminal that can, for someone who wants more than plain lines."""
    # NO_COLOR is read by rich, which is what `no_color` says.
    return to.is_terminal and not to.is_dumb_terminal and not to.no_color


def follow(watching: Watching, work: Callable[[Client], Awaitable[None]]) -> None:
    """Do something that watches, and end the command as the run ended.

    Raises:
        CommandError: the server refused, or can't be reached.
        SystemExit: always otherwise, with the code of the run's end.
    """

    async def with_client() -> None:
        with _terminable():
            async with watching.settings.client() as client, asyncio.timeout(watching.longest_s):
                await work(client)

    try:
        asyncio.run(with_client())
    except KeyboardInterrupt:
        _say(watching.stopped_text(), watching.settings)
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except TimeoutError:
        if watching.longest_s is None:
            raise
        _say(f"The time is up. {watching.stopped_text()}", watching.settings)
        raise SystemExit(ExitCode.TIME_IS_UP) from None
    except StepgraphError as error:
        raise as_command_error(error, watching.settings.command) from error
    raise SystemExit(watching.exit_code)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the watch in order: a view that is cut off would leave a terminal without a cursor.

    The task is cancelled by its loop: an exception out of a signal handler may be raised anywhere, also where it is lost.
    """
    loop, watch, terminated = asyncio.get_running_loop(), asyncio.current_task(), False

    def end() -> None:
        nonlocal terminated
        assert watch is not None, "it is in a coroutine"
        terminated = True
        watch.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    except asyncio.CancelledError:
        if terminated:
            raise SystemExit(_SIGNALLED + signal.SIGTERM) from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


def _say(text: str, settings: Settings) -> None:
    print_lines(text, to=console(settings.color, is_error=True))


class _Told:
    """What one of many runs has told, as whole lines: pieces of several runs would not be told apart."""

    def __init__(self, command: str) -> None:
        self._narrator = Narrator(command)
        self._pieces = Piecing()

    def lines(self, event: Event) -> Iterator[Line]:
        for told in self._narrator.tell(event):
            match told:
                case Piece():
                    yield from self._pieces.add(told)
                case Line():
                    yield from self._pieces.end()
                    yield told


@dataclass(slots=True, kw_only=True)
class ManyRuns:
    """Prints what happens in many runs, each line with its run. `root_run_id`: in that run and its child runs only."""

    settings: Settings
    out: Output = field(default_factory=Output)
    root_run_id: str = ""
    resume_token: str = ""
    longest_s: float | None = None
    exit_code: ExitCode = ExitCode.OK
    told: dict[str, _Told] = field(default_factory=dict)

    async def watch(self, client: Client, which: RunFilterOptions) -> None:
        """Print what happens, for as long as it is wanted; with a root, until that is over."""
        if self.root_run_id:
            news_of = client.watch_tree(self.root_run_id, resume_token=self.resume_token)
        else:
            news_of = client.watch_runs(resume_token=self.resume_token, **which)
        async for news in news_of:
            self.print(news)

    def print(self, news: RunNews) -> None:
        """Print what is to be said of one event."""
        self.resume_token = news.resume_token
        if not self.out.is_for_people:
            print_json_line(
                {
                    "run_id": news.run_id,
                    "event": plain(news.event),
                    "resume_token": news.resume_token,
                }
            )
            return
        told = self.told.get(news.run_id)
        if told is None:
            told = self.told[news.run_id] = _Told(self.settings.command)
        for line in told.lines(news.event):
            self.out.text(f"{news.run_id}  {line.text}", line.tone.value)
        if is_final(news.event):
            del self.told[news.run_id]
            if news.run_id == self.root_run_id:
                kind = news.event.WhichOneof("kind") or ""
                self.exit_code = _CODES.get(kind, ExitCode.OK)

    def stopped_text(self) -> str:
        """Return what to say when the watching was stopped."""
        if not self.resume_token:
            return "Stopped watching."
        which = f"{self.root_run_id} --tree" if self.root_run_id else "--all"
        command = f"{self.settings.command} runs watch {which} --resume {self.resume_token}"
        return f"Stopped watching; runs go on. To go on watching:\n  {command}"


def follow_many(many: ManyRuns, which: RunFilterOptions) -> None:
    """Watch many runs, and end the command; see `follow`."""
    follow(many, lambda client: many.watch(client, which))
