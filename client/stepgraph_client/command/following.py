"""Watching a run from the command line, until it is over or someone presses Ctrl-C.

Rules: Ctrl-C stops the watching and never the run, and says how to go on from the very next event.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client.command.calling import ExitCode, Settings, as_command_error
from stepgraph_client.command.output import plain, print_json_line
from stepgraph_client.errors import StepgraphError
from stepgraph_client.render import EventPrinter, Narrator, visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stepgraph_client.client import Client
    from stepgraph_client.errors import Status
    from stepgraph_client.watching import Event, RunNews

_CODES = {
    "run_failed": ExitCode.RUN_FAILED,
    "run_cancelled": ExitCode.RUN_CANCELLED,
}


@dataclass(slots=True, kw_only=True)
class Follow:
    """How far a watch has come: what to say if it is stopped, and how the run ended."""

    settings: Settings
    as_json: bool
    run_id: str = ""
    after_sequence: int = 0
    exit_code: ExitCode = ExitCode.OK

    async def watch(self, client: Client, *, history_only: bool = False) -> None:
        """Print a run's events until it is over."""
        printer = EventPrinter(command=self.settings.command)

        def lost(status: Status, failures: int) -> None:
            # Once, not at every try: a server that is replaced is away for many of them.
            if failures == 1:
                printer.end()
                trouble = status.message or status.code.name
                what = "lost the server" if status.lost else "the server has no room now"
                click.echo(f"{what} ({trouble}); trying again…", err=True)

        try:
            async for event in client.watch(
                self.run_id, self.after_sequence, history_only=history_only, on_lost=lost
            ):
                self._note(event)
                if self.as_json:
                    print_json_line(plain(event))
                else:
                    printer.print(event)
        finally:
            printer.end()

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
            f"Stopped watching; the run goes on.\n"
            f"  go on watching: {command} runs watch {self.run_id} --after {self.after_sequence}\n"
            f"  stop the run:   {command} runs cancel {self.run_id}"
        )


def follow(follow: Follow, work: Callable[[Client], Awaitable[None]]) -> None:
    """Do something that watches, and end the command as the run ended.

    Raises:
        CommandError: the server refused, or can't be reached.
        SystemExit: always otherwise, with the code of the run's end.
    """

    async def with_client() -> None:
        async with follow.settings.client() as client:
            await work(client)

    try:
        asyncio.run(with_client())
    except KeyboardInterrupt:
        click.echo(follow.stopped_text(), err=True)
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except StepgraphError as error:
        raise as_command_error(error) from error
    raise SystemExit(follow.exit_code)


class ManyRuns:
    """Prints what happens in many runs, each line with its run."""

    def __init__(self, settings: Settings, *, as_json: bool) -> None:
        self._settings = settings
        self._as_json = as_json
        self._narrators: dict[str, Narrator] = {}

    def print(self, news: RunNews) -> None:
        """Print what is to be said of one event."""
        if self._as_json:
            print_json_line({"run_id": news.run_id, "event": plain(news.event)})
            return
        narrator = self._narrators.setdefault(news.run_id, Narrator(self._settings.command))
        for told in narrator.tell(news.event):
            click.echo(f"{news.run_id}  {visible(told.text)}")
        if isinstance(news.event, RunEvent) and news.event.WhichOneof("kind") in {
            "run_completed",
            *_CODES,
        }:
            del self._narrators[news.run_id]
