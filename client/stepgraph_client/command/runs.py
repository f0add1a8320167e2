"""`stepgraph runs …`: look at runs and steer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from stepgraph.v1.run_service_pb2 import ForkChange
from stepgraph.v1.state_pb2 import StateUpdate
from stepgraph_client.command.calling import Settings, perform
from stepgraph_client.command.following import Follow, ManyRuns, follow
from stepgraph_client.command.output import plain, print_facts, print_json, print_table
from stepgraph_client.command.parameters import json_value, pair, span, variable
from stepgraph_client.errors import failure_text
from stepgraph_client.requests import run_status, status_name
from stepgraph_client.wording import (
    blocks_text,
    full_value_text,
    graph_text,
    labels_text,
    requirement_text,
    seconds_between,
    span_text,
    time_text,
    usage_text,
    value_text,
)

if TYPE_CHECKING:
    from stepgraph.v1.run_pb2 import Run
    from stepgraph.v1.run_service_pb2 import ExplainRunResponse
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.client import Client
    from stepgraph_client.requests import ForkOptions, RunFilterOptions
    from stepgraph_client.run_calls import RunHandle, RunState

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
reason_option = click.option("--reason", default="", help="Why; it is kept with the run.")


@click.group("runs")
def runs_group() -> None:
    """Look at runs and steer them."""


def _statuses(
    _context: click.Context, _parameter: object, names: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        try:
            run_status(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return names


@runs_group.command("list")
@click.option(
    "--status", "statuses", multiple=True, callback=_statuses, help="Only these, such as running."
)
@click.option("--graph", default="", help="Only of this graph: name, name@3 or sha256:….")
@click.option(
    "--label",
    "labels",
    type=pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="Only with this label.",
)
@click.option("--roots", is_flag=True, help="Leave out child runs.")
@click.option("--limit", default=20, type=click.IntRange(min=1), help="The most runs to list.")
@json_option
@click.pass_obj
def list_runs(  # noqa: PLR0913  (one argument for each option)
    settings: Settings,
    statuses: tuple[str, ...],
    graph: str,
    labels: tuple[tuple[str, str], ...],
    *,
    roots: bool,
    limit: int,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    which: RunFilterOptions = {
        "statuses": statuses,
        "graph": graph,
        "labels": dict(labels),
        "roots_only": roots,
    }

    async def work(client: Client) -> list[Run]:
        found: list[Run] = []
        async for run in client.list_runs(**which):
            found.append(run)
            if len(found) == limit:
                break
        return found

    runs = perform(settings, work)
    if as_json:
        print_json([plain(run) for run in runs])
        return
    print_table(
        ("RUN", "GRAPH", "STATUS", "CREATED", "STEPS", ""),
        ([*_row(run)] for run in runs),
        empty=f"no runs; start one with `{settings.command} run GRAPH`",
    )


def _row(run: Run) -> tuple[str, ...]:
    notes = []
    if run.open_interrupts:
        notes.append(f"{run.open_interrupts} open question{'s' if run.open_interrupts > 1 else ''}")
    if run.HasField("failure"):
        notes.append(run.failure.code)
    if run.quarantined:
        notes.append("its journal can't be read")
    return (
        run.run_id,
        graph_text(run.graph),
        status_name(run.status),
        time_text(run.create_time),
        str(run.iterations),
        ", ".join(notes),
    )


@runs_group.command("get")
@click.argument("run_id")
@json_option
@click.pass_obj
def get_run(settings: Settings, run_id: str, *, as_json: bool) -> None:
    """Show a run."""

    async def work(client: Client) -> Run:
        return await client.get_run(run_id)

    run = perform(settings, work)
    if as_json:
        print_json(plain(run))
    else:
        print_facts(_facts(run, settings))


def _facts(run: Run, settings: Settings) -> list[tuple[str, str]]:
    took = (
        f" (after {span_text(seconds_between(run.create_time, run.end_time))})"
        if run.HasField("end_time")
        else ""
    )
    questions = (
        f"{run.open_interrupts}; see `{settings.command} interrupts --run {run.run_id}`"
        if run.open_interrupts
        else ""
    )
    return [
        ("run", run.run_id),
        ("graph", graph_text(run.graph)),
        ("status", status_name(run.status)),
        ("labels", labels_text(run.labels)),
        ("created", time_text(run.create_time)),
        ("ended", f"{time_text(run.end_time)}{took}"),
        ("supersteps", str(run.iterations)),
        ("events", str(run.last_sequence)),
        ("used", usage_text(run.usage)),
        ("questions", questions),
        ("next", time_text(run.next_due_time)),
        ("parent", run.parent.run_id),
        ("forked from", run.origin.run_id),
        ("failure", failure_text(run.failure) if run.HasField("failure") else ""),
        ("output", full_value_text(run.result.output)),
    ]


@runs_group.command("watch")
@click.argument("run_id", required=False, default="")
@click.option("--after", default=0, type=click.IntRange(min=0), help="Only events after this one.")
@click.option("--history", is_flag=True, help="Stop at what has happened so far.")
@click.option("--json", "as_json", is_flag=True, help="Print events as JSON, one a line.")
@click.pass_obj
def watch(settings: Settings, run_id: str, after: int, *, history: bool, as_json: bool) -> None:
    """Watch a run, from its beginning or from an event on. Without RUN_ID: all runs, from now on.

    The command ends as the run ends: 0 if it COMPLETED, 1 if it FAILED, 5 if it was CANCELLED.
    """
    progress = Follow(settings=settings, as_json=as_json, run_id=run_id, after_sequence=after)

    async def one(client: Client) -> None:
        await progress.watch(client, history_only=history)

    async def all_runs(client: Client) -> None:
        printer = ManyRuns(settings, as_json=as_json)
        async for news in client.watch_runs():
            printer.print(news)

    follow(progress, one if run_id else all_runs)


@runs_group.command("state")
@click.argument("run_id")
@click.option("--at", "sequence", default=0, help="After this event; the last one if not given.")
@json_option
@click.pass_obj
def state(settings: Settings, run_id: str, sequence: int, *, as_json: bool) -> None:
    """Show a run's variables and conversation."""

    async def work(client: Client) -> RunState:
        return await client.state(run_id, sequence)

    found = perform(settings, work)
    if as_json:
        print_json({"sequence": found.sequence, "state": plain(found.state)})
        return
    click.echo(f"after event {found.sequence}")
    print_facts((name, value_text(value)) for name, value in sorted(found.state.variables.items()))
    for message in found.state.conversation.messages:
        role = {1: "system", 2: "user", 3: "assistant", 4: "tool"}.get(message.role, "?")
        print_facts([(role, blocks_text(message.content) or "…")])


@runs_group.command("explain")
@click.argument("run_id")
@json_option
@click.pass_obj
def explain(settings: Settings, run_id: str, *, as_json: bool) -> None:
    """Say what a run waits for."""

    async def work(client: Client) -> ExplainRunResponse:
        return await client.explain(run_id)

    found = perform(settings, work)
    if as_json:
        print_json(plain(found))
        return
    if not found.waits:
        click.echo(f"{run_id} is {status_name(found.run.status)} and waits for nothing")
    for wait in found.waits:
        capable = (
            f" ({requirement_text(wait.requirement)}: {wait.capable_executors} connected)"
            if wait.HasField("requirement")
            else ""
        )
        until = f", until {time_text(wait.due_time)}" if wait.HasField("due_time") else ""
        since = time_text(wait.since_time)
        click.echo(f"{wait.task_id}: {wait.description}{capable}, since {since}{until}")
        if wait.HasField("last_failure"):
            click.echo(f"  last failure: {failure_text(wait.last_failure)}")


@runs_group.command("cancel")
@click.argument("run_id")
@reason_option
@json_option
@click.pass_obj
def cancel(settings: Settings, run_id: str, reason: str, *, as_json: bool) -> None:
    """Stop a run."""

    async def work(client: Client) -> Run:
        return await client.cancel(run_id, reason)

    _print_run(perform(settings, work), as_json=as_json)


@runs_group.command("pause")
@click.argument("run_id")
@reason_option
@json_option
@click.pass_obj
def pause(settings: Settings, run_id: str, reason: str, *, as_json: bool) -> None:
    """Keep anything new of a run from starting."""

    async def work(client: Client) -> Run:
        return await client.pause(run_id, reason)

    _print_run(perform(settings, work), as_json=as_json)


@runs_group.command("unpause")
@click.argument("run_id")
@json_option
@click.pass_obj
def unpause(settings: Settings, run_id: str, *, as_json: bool) -> None:
    """Let a paused run go on."""

    async def work(client: Client) -> Run:
        return await client.unpause(run_id)

    _print_run(perform(settings, work), as_json=as_json)


@runs_group.command("signal")
@click.argument("run_id")
@click.argument("name")
@click.option("--text", help="The payload, as text.")
@click.option("--payload", type=json_value, metavar="JSON", help="The payload, as JSON.")
@click.option("--correlation", default="", help="What waits match it by.")
@json_option
@click.pass_obj
def signal(  # noqa: PLR0913  (one argument for each option)
    settings: Settings,
    run_id: str,
    name: str,
    text: str | None,
    payload: Value | None,
    *,
    correlation: str,
    as_json: bool,
) -> None:
    """Send a signal to a run and its child runs."""

    async def work(client: Client) -> Run:
        content = text if payload is None else payload
        return await client.signal(run_id, name, content, correlation=correlation)

    _print_run(perform(settings, work), as_json=as_json)


@runs_group.command("retry")
@click.argument("run_id")
@json_option
@click.pass_obj
def retry(settings: Settings, run_id: str, *, as_json: bool) -> None:
    """Make a new run that starts just before a failed run's failure. Nothing that finished is repeated."""

    async def work(client: Client) -> RunHandle:
        return await client.retry(run_id)

    handle = perform(settings, work)
    _print_run(handle.run, as_json=as_json)


class _ForkOptions(TypedDict):
    run_id: str
    sequence: int
    new_run_id: str
    graph: str
    variables: tuple[tuple[str, Value], ...]
    labels: tuple[tuple[str, str], ...]
    max_iterations: int
    token_limit: int | None
    time_limit: str | None
    as_json: bool


@runs_group.command("fork")
@click.argument("run_id")
@click.option("--at", "sequence", default=0, help="The last event to keep; all, if not given.")
@click.option("--run-id", "new_run_id", default="", help="The new run's id.")
@click.option("--graph", default="", help="Another version: name@3 or sha256:….")
@click.option(
    "--var",
    "variables",
    type=variable,
    multiple=True,
    metavar="NAME=TEXT",
    help="Another value of a variable; NAME:=JSON for anything but text. Can be repeated.",
)
@click.option(
    "--label", "labels", type=pair, multiple=True, metavar="NAME=VALUE", help="In place of the old."
)
@click.option("--max-iterations", default=0, help="The most supersteps; as before, if not given.")
@click.option("--token-limit", type=int, help="The most tokens; as before, if not given.")
@click.option("--time-limit", type=span, metavar="DURATION", help="How long it may take.")
@json_option
@click.pass_obj
def fork(settings: Settings, /, **given: Unpack[_ForkOptions]) -> None:
    """Make a new run from a run's beginning, on request with changes. The old run stays as it is."""

    async def work(client: Client) -> RunHandle:
        return await client.fork(given["run_id"], **_fork_options(given))

    handle = perform(settings, work)
    _print_run(handle.run, as_json=given["as_json"])


def _fork_options(given: _ForkOptions) -> ForkOptions:
    built: ForkOptions = {
        "sequence": given["sequence"],
        "new_run_id": given["new_run_id"],
        "graph": given["graph"],
        "labels": dict(given["labels"]),
        "max_iterations": given["max_iterations"],
    }
    if given["variables"]:
        update = StateUpdate(variables=dict(given["variables"]))
        built["changes"] = [ForkChange(patch=ForkChange.Patch(update=update))]
    if given["token_limit"] is not None:
        built["token_limit"] = given["token_limit"]
    if given["time_limit"] is not None:
        built["time_limit"] = given["time_limit"]
    return built


@runs_group.command("delete")
@click.argument("run_id")
@click.pass_obj
def delete(settings: Settings, run_id: str) -> None:
    """Delete a run that is over, with its child runs."""

    async def work(client: Client) -> None:
        await client.delete(run_id)

    perform(settings, work)
    click.echo(f"{run_id} is deleted")


def _print_run(run: Run, *, as_json: bool) -> None:
    if as_json:
        print_json(plain(run))
    else:
        click.echo(f"{run.run_id} is {status_name(run.status)}")
