"""`stepgraph runs cancel|pause|unpause|signal|retry|fork|delete`: what changes a run, or makes another one of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from google.protobuf.json_format import Parse, ParseError

from stepgraph.v1.task_pb2 import TaskResult
from stepgraph_client.changes import another_answer, another_result, another_state
from stepgraph_client.command.calling import Settings, perform
from stepgraph_client.command.completing import complete_graph, complete_run
from stepgraph_client.command.output import ITEM_FORMS, Output, output_option
from stepgraph_client.command.parameters import (
    EVENT,
    SUPERSTEPS,
    TOKENS,
    json_value,
    pair,
    reply_to,
    span,
    variable,
)
from stepgraph_client.command.tree import Verb
from stepgraph_client.requests import status_name

if TYPE_CHECKING:
    from stepgraph.v1.run_pb2 import Run
    from stepgraph.v1.run_service_pb2 import ForkChange
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.client import Client
    from stepgraph_client.requests import ForkOptions
    from stepgraph_client.run_calls import RunHandle

reason_option = click.option("--reason", default="", help="Why; it is kept with the run.")
run_argument = click.argument("run_id", shell_complete=complete_run)


@click.command("cancel", cls=Verb)
@run_argument
@reason_option
@output_option(*ITEM_FORMS)
@click.pass_obj
def cancel(settings: Settings, run_id: str, reason: str, *, out: Output) -> None:
    """Stop a run. Executors are told, and have a moment to report what they have."""

    async def work(client: Client) -> Run:
        return await client.cancel(run_id, reason)

    _print_run(perform(settings, work), out)


@click.command("pause", cls=Verb)
@run_argument
@reason_option
@output_option(*ITEM_FORMS)
@click.pass_obj
def pause(settings: Settings, run_id: str, reason: str, *, out: Output) -> None:
    """Keep anything new of a run from starting."""

    async def work(client: Client) -> Run:
        return await client.pause(run_id, reason)

    _print_run(perform(settings, work), out)


@click.command("unpause", cls=Verb)
@run_argument
@output_option(*ITEM_FORMS)
@click.pass_obj
def unpause(settings: Settings, run_id: str, *, out: Output) -> None:
    """Let a paused run go on."""

    async def work(client: Client) -> Run:
        return await client.unpause(run_id)

    _print_run(perform(settings, work), out)


class _SignalOptions(TypedDict):
    run_id: str
    name: str
    text: str | None
    payload: Value | None
    correlation: str


@click.command("signal", cls=Verb)
@run_argument
@click.argument("name")
@click.option("--text", help="The payload, as text.")
@click.option("--payload", type=json_value, metavar="JSON", help="The payload, as JSON.")
@click.option("--correlation", default="", metavar="TEXT", help="What waits match it by.")
@output_option(*ITEM_FORMS)
@click.pass_obj
def signal(settings: Settings, /, *, out: Output, **given: Unpack[_SignalOptions]) -> None:
    """Send a signal to a run and its child runs. It may come before anyone waits for it."""
    if given["text"] is not None and given["payload"] is not None:
        message = "give --text or --payload, not both"
        raise click.UsageError(message)
    content = given["text"] if given["payload"] is None else given["payload"]

    async def work(client: Client) -> Run:
        return await client.signal(
            given["run_id"], given["name"], content, correlation=given["correlation"]
        )

    _print_run(perform(settings, work), out)


@click.command("retry", cls=Verb)
@run_argument
@click.option("--run-id", "new_run_id", default="", help="The new run's id.")
@output_option(*ITEM_FORMS)
@click.pass_obj
def retry(settings: Settings, run_id: str, new_run_id: str, *, out: Output) -> None:
    """Make a new run that starts just before a failed run's failure. Nothing that finished is repeated."""

    async def work(client: Client) -> RunHandle:
        return await client.retry(run_id, new_run_id)

    _print_new(perform(settings, work), settings, out)


class _ForkOptions(TypedDict):
    run_id: str
    sequence: int | None
    new_run_id: str
    graph: str
    variables: tuple[tuple[str, Value], ...]
    deleted: tuple[str, ...]
    answers: tuple[tuple[str, str], ...]
    results: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...]
    max_iterations: int | None
    token_limit: int | None
    time_limit: str | None


@click.command("fork", cls=Verb)
@run_argument
@click.option(
    "--at",
    "sequence",
    type=EVENT,
    metavar="EVENT",
    help="The last event to keep, which `runs history` shows; all, if not given.",
)
@click.option("--run-id", "new_run_id", default="", help="The new run's id.")
@click.option(
    "--graph",
    default="",
    shell_complete=complete_graph,
    help="Another version: name@3 or sha256:….",
)
@click.option(
    "--var",
    "variables",
    type=variable,
    multiple=True,
    metavar="NAME=TEXT",
    help="Another value of a variable; NAME:=JSON for anything but text. Can be repeated.",
)
@click.option(
    "--delete-var",
    "deleted",
    multiple=True,
    metavar="NAME",
    help="Unset a variable. Can be repeated.",
)
@click.option(
    "--answer",
    "answers",
    type=pair,
    multiple=True,
    metavar="ACTIVATION=ANSWER",
    help="Another answer to an open question: 4/approve=proceed, =revise:TEXT, =choose:ID, =abort:TEXT, =reply:TEXT, =reply-json:JSON or =failed:CODE.",
)
@click.option(
    "--result",
    "results",
    type=pair,
    multiple=True,
    metavar="TASK=JSON|@FILE",
    help="Another result of an outstanding task: a stepgraph.v1.TaskResult as JSON, such as "
    '2/look/t0/e0={"tool": {"output": {"text": "sunny"}}}.',
)
@click.option(
    "--label", "labels", type=pair, multiple=True, metavar="NAME=VALUE", help="In place of the old."
)
@click.option(
    "--max-iterations",
    type=SUPERSTEPS,
    metavar="N",
    help="The most supersteps from there on; as before, if not given.",
)
@click.option(
    "--token-limit",
    type=TOKENS,
    metavar="N",
    help="The most tokens, 0 is no limit; as before, if not given.",
)
@click.option("--time-limit", type=span, metavar="DURATION", help="How long it may take.")
@output_option(*ITEM_FORMS)
@click.pass_obj
def fork(settings: Settings, /, *, out: Output, **given: Unpack[_ForkOptions]) -> None:
    """Make a new run from a run's beginning, on request with changes. The old run stays as it is."""
    options = _fork_options(given)

    async def work(client: Client) -> RunHandle:
        return await client.fork(given["run_id"], **options)

    _print_new(perform(settings, work), settings, out)


def _fork_options(given: _ForkOptions) -> ForkOptions:
    built: ForkOptions = {
        "sequence": given["sequence"] or 0,
        "new_run_id": given["new_run_id"],
        "graph": given["graph"],
        "labels": dict(given["labels"]),
        "max_iterations": given["max_iterations"] or 0,
        "changes": _changes(given),
    }
    if given["token_limit"] is not None:
        built["token_limit"] = given["token_limit"]
    if given["time_limit"] is not None:
        built["time_limit"] = given["time_limit"]
    return built


def _changes(given: _ForkOptions) -> list[ForkChange]:
    changes = [another_answer(where, reply_to(text)) for where, text in given["answers"]]
    changes += [another_result(task_id, _result(text)) for task_id, text in given["results"]]
    if given["variables"] or given["deleted"]:
        changes.append(another_state(dict(given["variables"]), delete=given["deleted"]))
    return changes


def _result(text: str) -> TaskResult:
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"--result: {text[1:]} can't be read: {error}"
            raise click.UsageError(message) from error
    try:
        return Parse(text, TaskResult())
    except ParseError as error:
        message = f"--result: this is no stepgraph.v1.TaskResult: {error}"
        raise click.UsageError(message) from error


@click.command("delete", cls=Verb)
@run_argument
@click.pass_obj
def delete(settings: Settings, run_id: str) -> None:
    """Delete a run that is over, with its child runs. It can't be undone."""

    async def work(client: Client) -> None:
        await client.delete(run_id)

    perform(settings, work)
    click.echo(f"{run_id} is deleted")


def _print_run(run: Run, out: Output) -> None:
    if not out.document(run, ids=run.run_id):
        out.text(f"{run.run_id} is {status_name(run.status)}")


def _print_new(handle: RunHandle, settings: Settings, out: Output) -> None:
    _print_run(handle.run, out)
    if out.is_for_people:
        click.echo(f"watch it: {settings.command} runs watch {handle.run_id}", err=True)


STEERING = (cancel, pause, unpause, signal, retry, fork, delete)
