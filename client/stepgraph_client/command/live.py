"""A run on a terminal: what happens goes by as lines, and below them stands where the run is now.

Rules: the lines are those of a pipe, and stay when the view is gone; only what is below them is drawn anew. It is drawn by the loop that
reads the events, and by no thread, so that nobody draws what is being changed. Nothing is wider than the terminal or higher than a third of it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.text import Text

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client.command.picture import RunPicture, path_text
from stepgraph_client.command.piecing import Piecing
from stepgraph_client.event_printer import visible
from stepgraph_client.folding import folded
from stepgraph_client.lines import Line, Piece
from stepgraph_client.render import Narrator
from stepgraph_client.wording import question_text, shortened, span_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from rich.console import Console

    from stepgraph_client.command.picture import OpenTask
    from stepgraph_client.watching import Event

#: How often it is drawn if nothing happens; often enough for seconds to tick.
PERIOD_S = 0.25
#: Of how many streams the end is shown.
MAX_STREAMS = 3
#: How many tasks and questions are named; the rest is counted.
MAX_NAMED = 6

#: Longer than it takes to try again. Who has not been told of trouble for so long is connected again, though nothing may happen.
NOTICE_S = 8.0

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def _now_s() -> float:
    return time.time()  # noqa: TID251  (events have times of the day, and so has their age)


class LiveView:
    """Shows one run. Inside `running()` it draws itself; `print` takes events."""

    def __init__(
        self, console: Console, command: str = "stepgraph", *, now_s: Callable[[], float] = _now_s
    ) -> None:
        self._console = console
        self._narrator = Narrator(command)
        self._picture = RunPicture()
        self._now_s = now_s
        self._pieces = Piecing()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._notice, self._notice_s = "", 0.0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Draw, again and again, until the context is left; then only the lines are left."""
        async with asyncio.TaskGroup() as tasks:
            self._live.start()
            ticking = tasks.create_task(self._tick())
            try:
                yield
            finally:
                ticking.cancel()
                self.end()
                self._live.update(Text(""))
                self._live.stop()

    async def _tick(self) -> None:
        while True:
            self.draw()
            await asyncio.sleep(PERIOD_S)

    def print(self, event: Event) -> None:
        """Show an event."""
        self._notice = ""
        for told in self._narrator.tell(event):
            match told:
                case Line():
                    self.end()
                    self._write(told)
                case Piece():
                    for line in self._pieces.add(told):
                        self._write(line)
        if isinstance(event, RunEvent):
            self._picture.take(event)

    def say(self, text: str, *, is_new: bool = True) -> None:  # noqa: ARG002  (shown as long as it lasts)
        """Show trouble with the watching itself, until the next event, or until it has not been told again for a while."""
        self._notice, self._notice_s = text, self._now_s()
        self.draw()

    def end(self) -> None:
        """Let go of what was streamed so far, so that what follows stands below it."""
        for line in self._pieces.end():
            self._write(line)

    def draw(self) -> None:
        """Draw where the run is now."""
        self._live.update(Group(*self._lines()), refresh=True)

    def _write(self, line: Line) -> None:
        for part in folded(visible(line.text), self._console.width):
            self._console.print(Text(part, style=line.tone.value))

    # What stands below the lines ------------------------------------------------------------------------------------

    def _lines(self) -> Iterator[Text]:
        """Yield what is below, each one no wider than the terminal, and no more than a third of its lines."""
        # Ctrl-C is echoed behind the last line; if that were full, all would move, and its first line be left behind.
        width = max(self._console.width - 3, 20)
        lines = [*self._streamed(width), *self._status(width)]
        for line in lines[-max(self._console.height // 3, 4) :]:
            line.truncate(width, overflow="ellipsis")
            yield line

    def _streamed(self, width: int) -> Iterator[Text]:
        """Yield the end of what is being streamed."""
        for piece in self._pieces.open[-MAX_STREAMS:]:
            room = max(width - 6, 10)
            shown = visible(piece.text)[-room:]
            yield Text(f"  │ {shown}", style=piece.tone.value)

    def _status(self, width: int) -> Iterator[Text]:
        picture = self._picture
        if not picture.run_id:
            # A watch that began in the middle has seen neither its beginning nor its name.
            yield Text("… watching", style="dim")
        else:
            took = self._age(picture.start_s)
            tokens = f"{picture.tokens:,} tokens" if picture.tokens else ""
            facts = [picture.standing, f"superstep {picture.superstep}", took, tokens]
            title = f"── {' · '.join(each for each in facts if each)} "
            yield Text(title.ljust(min(width, 80), "─"), style="cyan")
        if picture.path:
            yield Text(f"   {path_text(picture.path, width - 3)}")
        yield from self._tasks()
        questions = list(picture.questions.values())
        for question in questions[:MAX_NAMED]:
            text = shortened(question_text(question), 200)
            yield Text(visible(f" ? {question.node_id}: {text}"), style="bold magenta")
        if self._notice and self._now_s() - self._notice_s < NOTICE_S:
            yield Text(visible(f" ! {self._notice}"), style="yellow")

    def _tasks(self) -> Iterator[Text]:
        tasks = list(self._picture.tasks.values())
        for task in tasks[:MAX_NAMED]:
            yield self._task(task)
        if len(tasks) > MAX_NAMED:
            yield Text(f"   and {len(tasks) - MAX_NAMED} more tasks", style="dim")

    def _task(self, task: OpenTask) -> Text:
        age = self._age(task.since_s)
        name = visible(f"{task.name} · {task.label}" if task.label else task.name)
        if task.executor_id:
            mark = _SPINNER[int(self._now_s() / PERIOD_S) % len(_SPINNER)]
            parts = [f" {mark} {name}", age, f"at {visible(task.executor_id)}"]
            return Text("  ".join(each for each in parts if each), style="green")
        why = task.trouble or "waits for an executor with room"
        parts = [f" ◌ {name}", age, visible(why)]
        return Text("  ".join(each for each in parts if each), style="yellow")

    def _age(self, since_s: float) -> str:
        """Return how long ago something was, by this machine's clock; empty if that is not known, or still to come."""
        seconds = round(self._now_s() - since_s)
        return span_text(seconds) if since_s and seconds >= 0 else ""
