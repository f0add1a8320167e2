"""`stepgraph run`: start a run, and watch it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from stepgraph_client.command.calling import Settings, perform
from stepgraph_client.command.completing import complete_graph, complete_run
from stepgraph_client.command.following import Follow, follow
from stepgraph_client.command.output import STREAM_FORMS, Form, Output, output_option
from stepgraph_client.command.parameters import (
    SUPERSTEPS,
    TOKENS,
    GivenGraph,
    given_graph,
    json_value,
    pair,
    seconds,
    span,
    variable,
)
from stepgraph_client.command.problems import all_problems
from stepgraph_client.command.tree import Verb
from stepgraph_client.errors import GraphInvalid
from stepgraph_client.wording import graph_text

if TYPE_CHECKING:
    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.client import Client
    from stepgraph_client.requests import RunOptions
    from stepgraph_client.run_calls import RunHandle


class _Options(TypedDict):
    graph: str
    input_text: str | None
    input_json: Value | None
    variables: tuple[tuple[str, Value], ...]
    messages: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    selector: tuple[tuple[str, str], ...]
    run_id: str
    continue_from: str
    max_iterations: int | None
    token_limit: int
    time_limit: str | None
    delay: str | None
    inline: bool
    detach: bool
    longest_s: float | None


@click.command("run", cls=Verb)
@click.argument("graph", shell_complete=complete_graph)
@click.option("--input", "input_text", metavar="TEXT", help="The run's input, as text.")
@click.option("--input-json", type=json_value, metavar="JSON", help="The run's input, as JSON.")
@click.option(
    "--var",
    "variables",
    type=variable,
    multiple=True,
    metavar="NAME=TEXT",
    help="A variable; NAME:=JSON for anything but text. Can be repeated.",
)
@click.option(
    "--message", "messages", multiple=True, metavar="TEXT", help="A user message to begin with."
)
@click.option(
    "--label", "labels", type=pair, multiple=True, metavar="NAME=VALUE", help="A label of the run."
)
@click.option(
    "--selector",
    type=pair,
    multiple=True,
    metavar="NAME=VALUE",
    help="A label that executors of it must bear.",
)
@click.option("--run-id", default="", help="The run's id; the server makes one if there is none.")
@click.option(
    "--continue-from",
    default="",
    metavar="RUN_ID",
    shell_complete=complete_run,
    help="Go on from a run's end.",
)
@click.option(
    "--max-iterations",
    type=SUPERSTEPS,
    metavar="N",
    help="The most supersteps; as the graph says, if not given.",
)
@click.option(
    "--token-limit", type=TOKENS, default=0, metavar="N", help="The most tokens; 0 is no limit."
)
@click.option(
    "--time-limit", type=span, metavar="DURATION", help="How long it may take, such as 10m."
)
@click.option("--delay", type=span, metavar="DURATION", help="When to start, from now.")
@click.option("--inline", is_flag=True, help="Send a file's graph along; don't register it.")
@click.option("--detach", is_flag=True, help="Print the run's id and don't watch it.")
@click.option(
    "--for",
    "longest_s",
    type=seconds,
    metavar="DURATION",
    help="Stop watching after so long, such as 10m, and end with 6. The run goes on.",
)
@output_option(*STREAM_FORMS, Form.IDS)
@click.pass_obj
def run_command(settings: Settings, /, *, out: Output, **options: Unpack[_Options]) -> None:
    """Start a run of GRAPH and watch it.

    GRAPH is a file (YAML or JSON), which is registered first, or a reference: name, name@3, sha256:….
    The command ends as the run ends: 0 if it COMPLETED, 1 if it FAILED, 5 if it was CANCELLED.
    Ctrl-C stops the watching, not the run. --output ids, like --detach, starts it and prints its id alone.
    """
    if options["input_text"] is not None and options["input_json"] is not None:
        message = "give --input or --input-json, not both"
        raise click.UsageError(message)
    graph = given_graph(options["graph"])
    if options["detach"] or out.form is Form.IDS:
        _detach(settings, graph, options, out)
        return
    progress = Follow(settings=settings, out=out, longest_s=options["longest_s"])

    async def start_and_watch(client: Client) -> None:
        handle = await _start(client, graph, options)
        progress.run_id = handle.run_id
        await progress.watch(client)

    follow(progress, start_and_watch)


def _detach(settings: Settings, graph: GivenGraph, options: _Options, out: Output) -> None:
    async def start(client: Client) -> RunHandle:
        return await _start(client, graph, options)

    handle = perform(settings, start)
    if out.document(handle.run, ids=handle.run_id):
        return
    click.echo(handle.run_id)
    click.echo(f"watch it: {settings.command} runs watch {handle.run_id}", err=True)


async def _start(client: Client, graph: GivenGraph, options: _Options) -> RunHandle:
    """Start the run; a broken graph ends the command with all its problems."""
    try:
        source = await _source(client, graph, options)
        return await client.start_run(source, **_run_options(options))
    except GraphInvalid as error:
        raise await all_problems(client, graph, error) from error


async def _source(client: Client, graph: GivenGraph, options: _Options) -> StateGraph | str:
    if graph.definition is None:
        return graph.reference
    if options["inline"]:
        return graph.definition
    registered = await client.register_graph(graph.definition)
    if registered.created:
        click.echo(f"registered {graph_text(registered.version)}", err=True)
    return registered.version.digest


def _run_options(options: _Options) -> RunOptions:
    built: RunOptions = {
        "variables": dict(options["variables"]),
        "messages": options["messages"],
        "labels": dict(options["labels"]),
        "selector": dict(options["selector"]),
        "run_id": options["run_id"],
        "max_iterations": options["max_iterations"] or 0,
        "token_limit": options["token_limit"],
    }
    if options["input_text"] is not None:
        built["input"] = options["input_text"]
    if options["input_json"] is not None:
        built["input"] = options["input_json"]
    if options["continue_from"]:
        built["continue_from"] = options["continue_from"]
    if options["time_limit"] is not None:
        built["time_limit"] = options["time_limit"]
    if options["delay"] is not None:
        built["delay"] = options["delay"]
    return built
