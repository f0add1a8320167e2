"""`stepgraph interrupts …`: the questions that runs wait on, over all runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph.v1.interrupt_pb2 import InterruptStatus
from stepgraph_client.command.calling import ExitCode, Settings, perform
from stepgraph_client.command.completing import complete_interrupt, complete_run
from stepgraph_client.command.following import follow
from stepgraph_client.command.output import (
    ITEM_FORMS,
    LIST_FORMS,
    STREAM_FORMS,
    Output,
    output_option,
    plain,
    print_json_line,
)
from stepgraph_client.command.parameters import pair, seconds
from stepgraph_client.command.tree import VerbGroup
from stepgraph_client.render import question_lines
from stepgraph_client.wording import answer_text, question_text, time_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph.v1.interrupt_pb2 import Interrupt
    from stepgraph_client.client import Client
    from stepgraph_client.requests import RunFilterOptions

_STATUSES = {
    "open": InterruptStatus.INTERRUPT_STATUS_OPEN,
    "answered": InterruptStatus.INTERRUPT_STATUS_ANSWERED,
    "closed": InterruptStatus.INTERRUPT_STATUS_CLOSED,
}


@click.group("interrupts", cls=VerbGroup, default="list")
def interrupts_group() -> None:
    """Questions that runs wait on.

    Without a verb: list those that are open. `stepgraph answer` answers one.
    """


@interrupts_group.command("list")
@click.option(
    "--run",
    "run_id",
    default="",
    shell_complete=complete_run,
    help="Only of this run and its child runs.",
)
@click.option(
    "--status",
    type=click.Choice(list(_STATUSES)),
    default="open",
    show_default=True,
    help="Which: open, answered, or closed because the run went on without an answer.",
)
@click.option("--answered", is_flag=True, help="The same as --status answered.")
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(min=1),
    help="The most questions to list.",
)
@output_option(*LIST_FORMS)
@click.pass_obj
def list_interrupts(
    settings: Settings, run_id: str, status: str, *, answered: bool, limit: int, out: Output
) -> None:
    """List questions, oldest first, each with the commands that answer it."""
    wanted = _STATUSES["answered" if answered else status]

    async def work(client: Client) -> tuple[list[Interrupt], bool]:
        found: list[Interrupt] = []
        questions = client.interrupts(run_id, include_descendants=bool(run_id), status=wanted)
        async for question in questions:
            if len(found) == limit:
                return found, True
            found.append(question)
        return found, False

    questions, is_cut = perform(settings, work)
    if out.documents(questions, ids=lambda question: question.interrupt_id):
        return
    if not questions:
        click.echo("no questions", err=True)
    for question in questions:
        print_question(question, settings, out)
    if is_cut:
        click.echo(f"there are more than {len(questions)}; --limit shows them", err=True)


@interrupts_group.command("get")
@click.argument("interrupt_id", shell_complete=complete_interrupt)
@output_option(*ITEM_FORMS)
@click.pass_obj
def get_interrupt(settings: Settings, interrupt_id: str, *, out: Output) -> None:
    """Show one question, open or not."""

    async def work(client: Client) -> Interrupt:
        return await client.get_interrupt(interrupt_id)

    question = perform(settings, work)
    if not out.document(question, ids=question.interrupt_id):
        print_question(question, settings, out)
        if question.answer_schema:
            out.facts([("  schema of the answer", question.answer_schema)])


class _Inbox:
    """A watch over the questions of all runs."""

    def __init__(
        self, settings: Settings, out: Output, longest_s: float | None, which: RunFilterOptions
    ) -> None:
        self.settings = settings
        self.longest_s = longest_s
        self.exit_code = ExitCode.OK
        self._out = out
        self._which = which

    async def watch(self, client: Client) -> None:
        """Print each question once, those that are open first; and what becomes of them."""
        # Where the watch begins is asked before the list: what is opened in between is in both, and told once.
        position = await client.watch_position(**self._which)
        shown: set[str] = set()
        if not self._which["graph"] and not self._which["labels"]:
            async for question in client.interrupts():
                shown.add(question.interrupt_id)
                self._print_opened(question)
        async for question in self._opened(client, position, shown):
            self._print_opened(question)

    async def _opened(
        self, client: Client, position: str, shown: set[str]
    ) -> AsyncIterator[Interrupt]:
        async for news in client.watch_runs(resume_token=position, **self._which):
            if not isinstance(news.event, RunEvent):
                continue
            kind = news.event.WhichOneof("kind")
            if kind == "interrupt_opened":
                question = news.event.interrupt_opened.question
                if question.interrupt_id not in shown:
                    shown.add(question.interrupt_id)
                    yield question
            elif kind in {"interrupt_answered", "interrupt_closed"}:
                fact = getattr(news.event, kind)
                shown.discard(fact.interrupt_id)
                self._print_ended(news.event, kind, fact.interrupt_id)

    def _print_opened(self, question: Interrupt) -> None:
        if self._out.is_for_people:
            print_question(question, self.settings, self._out)
        else:
            print_json_line(plain(question))

    def _print_ended(self, event: RunEvent, kind: str, interrupt_id: str) -> None:
        if not self._out.is_for_people:
            print_json_line({"interrupt_id": interrupt_id, kind: plain(getattr(event, kind))})
            return
        answered = event.interrupt_answered
        if kind == "interrupt_answered":
            who = "the deadline" if answered.by_deadline else answered.answered_by or "someone"
            text = f"answered by {who}: {answer_text(answered.answer)}"
        else:
            text = f"closed: {event.interrupt_closed.reason or 'the run went on'}"
        self._out.text(
            f"{interrupt_id}  {text}", "green" if kind == "interrupt_answered" else "dim"
        )

    def stopped_text(self) -> str:
        """Return what to say when the watching was stopped."""
        return "Stopped watching; questions stay open."


@interrupts_group.command("watch")
@click.option("--graph", default="", help="Only of runs of this graph, from now on.")
@click.option(
    "--label",
    "labels",
    type=pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="Only of runs with this label, from now on. Can be repeated.",
)
@click.option(
    "--for",
    "longest_s",
    type=seconds,
    metavar="DURATION",
    help="Stop watching after so long, such as 10m, and end with 6.",
)
@output_option(*STREAM_FORMS)
@click.pass_obj
def watch_interrupts(
    settings: Settings,
    graph: str,
    labels: tuple[tuple[str, str], ...],
    longest_s: float | None,
    *,
    out: Output,
) -> None:
    """Show the questions that are open, and each new one as it is asked, until Ctrl-C."""
    inbox = _Inbox(settings, out, longest_s, {"graph": graph, "labels": dict(labels)})
    follow(inbox, inbox.watch)


def print_question(question: Interrupt, settings: Settings, out: Output) -> None:
    """Print a question with the run that asks, and how to answer it, or how it was answered."""
    out.text(
        f"{question.interrupt_id}  of {question.run_id}  {time_text(question.open_time)}", "bold"
    )
    if question.status == InterruptStatus.INTERRUPT_STATUS_OPEN:
        for line in question_lines(question, settings.command):
            out.text(f"  {line.text}", line.tone.value)
        return
    asked = question_text(question).replace("\n", "\n    ")
    out.text(f"  {question.node_id}: {asked}")
    if question.status == InterruptStatus.INTERRUPT_STATUS_ANSWERED:
        out.text(f"  {question.answered_by}: {answer_text(question.answer)}", "green")
    else:
        out.text("  closed without an answer", "dim")
