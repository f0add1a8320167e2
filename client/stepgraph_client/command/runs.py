"""`stepgraph runs …`: list, read and watch runs. What steers and examines them stands in files of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from stepgraph_client.command.calling import Settings, perform
from stepgraph_client.command.completing import complete_graph, complete_run
from stepgraph_client.command.examining import explain_command, history_command, state_command
from stepgraph_client.command.following import Follow, ManyRuns, follow, follow_many
from stepgraph_client.command.output import (
    ITEM_FORMS,
    LIST_FORMS,
    STREAM_FORMS,
    Column,
    Output,
    output_option,
)
from stepgraph_client.command.parameters import AFTER, moment, pair, seconds, status_names
from stepgraph_client.command.steering import STEERING
from stepgraph_client.command.tree import VerbGroup
from stepgraph_client.errors import failure_text
from stepgraph_client.requests import status_name
from stepgraph_client.wording import (
    full_value_text,
    graph_text,
    labels_text,
    seconds_between,
    span_text,
    time_text,
    usage_text,
)

if TYPE_CHECKING:
    from datetime import datetime

    from stepgraph.v1.run_pb2 import Run
    from stepgraph_client.client import Client
    from stepgraph_client.requests import RunFilterOptions

COLUMNS = (
    Column(name="RUN", style="bold"),
    Column(name="GRAPH", is_flexible=True),
    Column(
        name="STATUS",
        styles={
            "running": "cyan",
            "suspended": "magenta",
            "paused": "yellow",
            "stopping": "yellow",
            "completed": "green",
            "failed": "red",
            "cancelled": "yellow",
        },
    ),
    Column(name="CREATED"),
    Column(name="STEPS"),
    Column(name="NOTES", is_flexible=True, style="yellow"),
)


@click.group("runs", cls=VerbGroup)
def runs_group() -> None:
    """Look at runs and steer them."""


for _command in (state_command, history_command, explain_command, *STEERING):
    runs_group.add_command(_command)


class _ListOptions(TypedDict):
    statuses: tuple[str, ...]
    graph: str
    labels: tuple[tuple[str, str], ...]
    since: datetime | None
    until: datetime | None
    roots: bool
    limit: int


@runs_group.command("list")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    callback=status_names,
    metavar="STATUS",
    help="Only these, such as running. Can be repeated.",
)
@click.option(
    "--graph",
    default="",
    shell_complete=complete_graph,
    help="Only of this graph: name, name@3 or sha256:….",
)
@click.option(
    "--label",
    "labels",
    type=pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="Only with this label. Can be repeated.",
)
@click.option(
    "--since", type=moment, metavar="TIME", help="Created at or after: 2026-01-31, or 2h."
)
@click.option("--until", type=moment, metavar="TIME", help="Created before.")
@click.option("--roots", is_flag=True, help="Leave out child runs.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="The most runs to list.",
)
@output_option(*LIST_FORMS)
@click.pass_obj
def list_runs(settings: Settings, /, *, out: Output, **given: Unpack[_ListOptions]) -> None:
    """List runs, newest first."""
    which = _filter(given["graph"], given["labels"], roots=given["roots"])
    which["statuses"] = given["statuses"]
    if given["since"] is not None:
        which["created_from"] = given["since"]
    if given["until"] is not None:
        which["created_before"] = given["until"]

    async def work(client: Client) -> tuple[list[Run], bool]:
        found: list[Run] = []
        async for run in client.list_runs(**which):
            if len(found) == given["limit"]:
                return found, True
            found.append(run)
        return found, False

    runs, is_cut = perform(settings, work)
    if out.documents(runs, ids=lambda run: run.run_id):
        return
    out.table(
        COLUMNS,
        (_row(run) for run in runs),
        empty=f"no runs; start one with `{settings.command} run GRAPH`",
    )
    if is_cut:
        click.echo(f"there are more than {len(runs)}; --limit shows them", err=True)


def _filter(graph: str, labels: tuple[tuple[str, str], ...], *, roots: bool) -> RunFilterOptions:
    return {"graph": graph, "labels": dict(labels), "roots_only": roots}


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
@click.argument("run_id", shell_complete=complete_run)
@output_option(*ITEM_FORMS)
@click.pass_obj
def get_run(settings: Settings, run_id: str, *, out: Output) -> None:
    """Show a run."""

    async def work(client: Client) -> Run:
        return await client.get_run(run_id)

    run = perform(settings, work)
    if not out.document(run, ids=run.run_id):
        out.facts(_facts(run, settings))


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


class _WatchOptions(TypedDict):
    run_id: str
    every: bool
    after: int
    history: bool
    tree: bool
    graph: str
    labels: tuple[tuple[str, str], ...]
    roots: bool
    resume: str
    longest_s: float | None


@runs_group.command("watch")
@click.argument("run_id", required=False, default="", shell_complete=complete_run)
@click.option("--after", default=0, type=AFTER, metavar="EVENT", help="Only events after this one.")
@click.option("--history", is_flag=True, help="Stop at what has happened so far.")
@click.option("--tree", is_flag=True, help="Watch the child runs of RUN_ID as well.")
@click.option("--all", "every", is_flag=True, help="Watch all runs, from now on.")
@click.option(
    "--graph", default="", shell_complete=complete_graph, help="With --all: only of this graph."
)
@click.option(
    "--label",
    "labels",
    type=pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="With --all: only with this label. Can be repeated.",
)
@click.option("--roots", is_flag=True, help="With --all: leave out child runs.")
@click.option("--resume", default="", metavar="TOKEN", help="With --all or --tree: go on there.")
@click.option(
    "--for",
    "longest_s",
    type=seconds,
    metavar="DURATION",
    help="Stop watching after so long, such as 10m, and end with 6. The run goes on.",
)
@output_option(*STREAM_FORMS)
@click.pass_obj
def watch(settings: Settings, /, *, out: Output, **given: Unpack[_WatchOptions]) -> None:
    """Watch a run, or many.

    One from its beginning, or from an event on; with --all many, from now on.
    The command ends as the run ends: 0 if it COMPLETED, 1 if it FAILED, 5 if it was CANCELLED.
    Ctrl-C stops the watching, not the run. On a terminal the last lines show where the run is now.
    """
    _check_watch(given)
    run_id = given["run_id"]
    if run_id and not given["tree"]:
        one = Follow(
            settings=settings,
            out=out,
            run_id=run_id,
            after_sequence=given["after"],
            longest_s=given["longest_s"],
        )
        follow(one, lambda client: one.watch(client, history_only=given["history"]))
        return
    # Without a run and without --all: that is what was meant, and has always been so.
    which = _filter(given["graph"], given["labels"], roots=given["roots"])
    many = ManyRuns(
        settings=settings,
        out=out,
        root_run_id=run_id,
        resume_token=given["resume"],
        longest_s=given["longest_s"],
    )
    follow_many(many, which)


def _check_watch(given: _WatchOptions) -> None:
    """Refuse options that do nothing beside each other."""
    filters = bool(given["graph"] or given["labels"] or given["roots"])
    wrong = (
        (bool(given["run_id"]) and given["every"], "give RUN_ID or --all, not both"),
        (bool(given["run_id"]) and filters, "--graph, --label and --roots are for --all"),
        (not given["run_id"] and given["tree"], "--tree needs a RUN_ID"),
        (
            bool(given["resume"]) and bool(given["run_id"]) and not given["tree"],
            "--resume is for --all and --tree; a run goes on with --after",
        ),
        (
            (given["history"] or bool(given["after"])) and (not given["run_id"] or given["tree"]),
            "--after and --history are for one run",
        ),
    )
    for is_wrong, message in wrong:
        if is_wrong:
            raise click.UsageError(message)
