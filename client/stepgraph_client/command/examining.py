"""`stepgraph runs state|history|explain`: how a run came to be where it is, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client.command.calling import CommandError, Settings, perform
from stepgraph_client.command.completing import complete_run
from stepgraph_client.command.output import (
    LIST_FORMS,
    PLAIN_FORMS,
    Column,
    Output,
    output_option,
    plain,
)
from stepgraph_client.command.parameters import AFTER, EVENT
from stepgraph_client.command.picture import seconds_of
from stepgraph_client.command.tree import Verb
from stepgraph_client.errors import failure_text
from stepgraph_client.render import Narrator
from stepgraph_client.requests import status_name
from stepgraph_client.wording import (
    blocks_text,
    full_value_text,
    question_text,
    requirement_text,
    span_text,
    time_text,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepgraph.v1.run_service_pb2 import ExplainRunResponse, Wait
    from stepgraph_client.client import Client
    from stepgraph_client.run_calls import RunState

_ROLES = {1: "system", 2: "user", 3: "assistant", 4: "tool"}


# State ------------------------------------------------------------------------------------------------------------


@click.command("state", cls=Verb)
@click.argument("run_id", shell_complete=complete_run)
@click.option(
    "--at",
    "sequence",
    type=EVENT,
    metavar="EVENT",
    help="After this event; after the last one, if not given.",
)
@click.option("--var", "name", default="", metavar="NAME", help="Only this variable, all of it.")
@output_option(*PLAIN_FORMS)
@click.pass_obj
def state_command(
    settings: Settings, run_id: str, sequence: int | None, name: str, *, out: Output
) -> None:
    """Show a run's variables and conversation, now or after any event."""

    async def work(client: Client) -> RunState:
        return await client.state(run_id, sequence or 0)

    found = perform(settings, work)
    if name:
        _print_variable(found, name, out)
    elif not out.document({"sequence": found.sequence, "state": plain(found.state)}):
        _print_state(found, out)


def _print_variable(found: RunState, name: str, out: Output) -> None:
    if name not in found.state.variables:
        names = ", ".join(sorted(found.state.variables)) or "none"
        message = f"there is no variable {name!r} after event {found.sequence}; there are: {names}"
        raise CommandError(message)
    value = found.state.variables[name]
    if not out.document(value):
        click.echo(full_value_text(value))


def _print_state(found: RunState, out: Output) -> None:
    state = found.state
    out.text(f"after event {found.sequence}", "bold")
    decided = state.parsed_decision.WhichOneof("kind") or ""
    failure = failure_text(state.last_error) if state.HasField("last_error") else ""
    carried = [
        ("(last result)", value_text(state.last_result)),
        ("(last error)", failure),
        ("(decision)", decided.replace("_", " ")),
        ("(paradigm)", state.active_paradigm),
    ]
    live = [
        ("(live)", f"{each.node_id}{', ended' if each.ended else ''}") for each in found.activations
    ]
    variables = [(name, value_text(value)) for name, value in sorted(state.variables.items())]
    out.facts([*variables, *carried, *live])
    out.facts(
        (_ROLES.get(message.role, "?"), blocks_text(message.content) or "…")
        for message in state.conversation.messages
    )


# History ----------------------------------------------------------------------------------------------------------


class _HistoryOptions(TypedDict):
    run_id: str
    after: int
    kinds: tuple[str, ...]
    node: str
    limit: int | None


_KINDS = tuple(field.name for field in RunEvent.DESCRIPTOR.oneofs_by_name["kind"].fields)


@click.command("history", cls=Verb)
@click.argument("run_id", shell_complete=complete_run)
@click.option("--after", default=0, type=AFTER, metavar="EVENT", help="Only events after this one.")
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(_KINDS),
    metavar="KIND",
    multiple=True,
    help="Only these, such as task_failed. Can be repeated.",
)
@click.option("--node", default="", metavar="ID", help="Only what names this node.")
@click.option("--limit", type=click.IntRange(min=1), help="The most events to show.")
@output_option(*LIST_FORMS)
@click.pass_obj
def history_command(
    settings: Settings, /, *, out: Output, **given: Unpack[_HistoryOptions]
) -> None:
    """List the events of a run so far.

    Each with its sequence, which is what `runs fork --at` and `runs state --at` take.
    """

    async def work(client: Client) -> list[tuple[RunEvent, str]]:
        narrator = Narrator(settings.command)
        found: list[tuple[RunEvent, str]] = []
        async for event in client.watch(given["run_id"], given["after"], history_only=True):
            if not isinstance(event, RunEvent):
                continue
            # Also of those that are not shown: what comes later refers to them.
            told = [each.text.strip() for each in narrator.tell(event)]
            if _is_wanted(event, given):
                found.append((event, told[0] if told else ""))
            if len(found) == given["limit"]:
                break
        return found

    events = perform(settings, work)
    if out.documents((event for event, _ in events), ids=lambda event: str(event.sequence)):
        return
    out.table(
        (
            Column(name="EVENT", style="bold"),
            Column(name="AFTER"),
            Column(name="KIND", style="cyan"),
            Column(name="WHAT", is_flexible=True),
        ),
        _history_rows(events),
        empty=f"no events of {given['run_id']} fit",
    )


def _history_rows(events: Iterable[tuple[RunEvent, str]]) -> Iterator[tuple[str, ...]]:
    start_s = 0.0
    for event, text in events:
        start_s = start_s or seconds_of(event)
        kind = (event.WhichOneof("kind") or "?").replace("_", " ")
        yield str(event.sequence), span_text(max(0.0, seconds_of(event) - start_s)), kind, text


def _is_wanted(event: RunEvent, given: _HistoryOptions) -> bool:
    kind = event.WhichOneof("kind") or ""
    if given["kinds"] and kind not in given["kinds"]:
        return False
    return not given["node"] or given["node"] in _nodes_of(event, kind)


def _nodes_of(event: RunEvent, kind: str) -> set[str]:
    """Return the nodes that an event names: by themselves, by their activation, or by a task."""
    fact = getattr(event, kind, None)
    names = set(getattr(fact, "nodes", ())) | set(getattr(fact, "node_ids", ()))
    if node_id := getattr(fact, "node_id", ""):
        names.add(node_id)
    for path in (getattr(fact, "task_id", ""), getattr(fact, "activation_id", "")):
        names.update(path.split("/")[1:2])
    if kind == "interrupt_opened":
        names.add(event.interrupt_opened.question.node_id)
    return names


# Explain ----------------------------------------------------------------------------------------------------------


@click.command("explain", cls=Verb)
@click.argument("run_id", shell_complete=complete_run)
@output_option(*PLAIN_FORMS)
@click.pass_obj
def explain_command(settings: Settings, run_id: str, *, out: Output) -> None:
    """Say what a run waits for, since when, and what would help."""

    async def work(client: Client) -> ExplainRunResponse:
        return await client.explain(run_id)

    found = perform(settings, work)
    if out.document(found):
        return
    if not found.waits:
        out.text(f"{run_id} is {status_name(found.run.status)} and waits for nothing")
    for wait in found.waits:
        _print_wait(wait, settings, out)


def _print_wait(wait: Wait, settings: Settings, out: Output) -> None:
    # A pause or a start that is delayed is of the run, not of a task.
    where = f"{wait.task_id}: " if wait.task_id else ""
    out.text(f"{where}{wait.description}", "bold")
    wanted = requirement_text(wait.requirement) if wait.HasField("requirement") else ""
    question = wait.question
    asked = f"{question_text(question)}; see `{settings.command} interrupts get {question.interrupt_id}`"
    out.facts(
        [
            ("  needs", f"{wanted}: {wait.capable_executors} connected" if wanted else ""),
            ("  since", time_text(wait.since_time)),
            ("  until", time_text(wait.due_time)),
            ("  asks", asked if wait.HasField("question") else ""),
            (
                "  last failure",
                failure_text(wait.last_failure) if wait.HasField("last_failure") else "",
            ),
        ]
    )
