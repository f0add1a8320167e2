"""`stepgraph graphs …`: check, register, read and draw graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph.v1.run_service_pb2 import WatchView
from stepgraph_client.command.calling import CommandError, Settings, perform
from stepgraph_client.command.completing import complete_graph, complete_run
from stepgraph_client.command.drawing import LEGEND, Footprints, draw
from stepgraph_client.command.output import (
    ITEM_FORMS,
    LIST_FORMS,
    PLAIN_FORMS,
    Column,
    Form,
    Output,
    output_option,
)
from stepgraph_client.command.parameters import GivenGraph, given_graph, reference
from stepgraph_client.command.problems import all_problems, problem_lines
from stepgraph_client.command.tree import VerbGroup
from stepgraph_client.dumps import dump_graph
from stepgraph_client.errors import GraphInvalid
from stepgraph_client.wording import graph_text, time_text

if TYPE_CHECKING:
    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.graph_service_pb2 import (
        GetGraphResponse,
        RegisterGraphResponse,
        ValidateGraphResponse,
    )
    from stepgraph.v1.run_pb2 import GraphVersion
    from stepgraph_client.client import Client

COLUMNS = (
    Column(name="GRAPH", style="bold"),
    Column(name="VERSION"),
    Column(name="REGISTERED"),
    Column(name="DIGEST"),
)


@click.group("graphs", cls=VerbGroup)
def graphs_group() -> None:
    """Check, register, read and draw graphs."""


@graphs_group.command("register")
@click.argument("file", type=click.Path())
@output_option(*ITEM_FORMS)
@click.pass_obj
def register(settings: Settings, file: str, *, out: Output) -> None:
    """Store the graph of FILE under its name. Other content makes a new version; the same content does not."""
    graph = given_graph(file)
    definition = _of_file(graph)

    async def work(client: Client) -> RegisterGraphResponse:
        try:
            return await client.register_graph(definition)
        except GraphInvalid as error:
            raise await all_problems(client, graph, error) from error

    registered = perform(settings, work)
    if out.document(registered, ids=graph_text(registered.version)):
        return
    word = "registered" if registered.created else "there already:"
    click.echo(f"{word} {graph_text(registered.version)} ({registered.version.digest})")
    for line in problem_lines(registered.warnings, graph.source, "warning"):
        click.echo(line, err=True)


@graphs_group.command("validate")
@click.argument("file", type=click.Path())
@output_option(*PLAIN_FORMS)
@click.pass_obj
def validate(settings: Settings, file: str, *, out: Output) -> None:
    """List all problems of the graph of FILE, with their lines. Nothing is stored. Ends with 3 if there are any."""
    graph = given_graph(file)
    definition = _of_file(graph)

    async def work(client: Client) -> ValidateGraphResponse:
        return await client.validate_graph(definition)

    checked = perform(settings, work)
    if not out.document(checked):
        for line in problem_lines(checked.problems, graph.source):
            out.text(line, "red" if "error: " in line else "")
        for line in problem_lines(checked.warnings, graph.source, "warning"):
            out.text(line, "yellow" if "warning: " in line else "")
    if checked.problems:
        count = len(checked.problems)
        message = f"{file} has {count} problem{'' if count == 1 else 's'}"
        raise CommandError(message)
    if out.is_for_people:
        nodes, edges = len(definition.nodes), len(definition.edges)
        out.text(f"{definition.name} is fine (nodes: {nodes}, edges: {edges})", "green")


@graphs_group.command("get")
@click.argument("graph", type=reference, shell_complete=complete_graph)
@output_option(Form.YAML, Form.JSON, Form.IDS)
@click.pass_obj
def get(settings: Settings, graph: str, *, out: Output) -> None:
    """Print the definition of GRAPH as YAML, as a file that can be registered again."""

    async def work(client: Client) -> GetGraphResponse:
        return await client.get_graph(graph)

    found = perform(settings, work)
    if out.form in {Form.JSON, Form.IDS}:
        out.document(found, ids=graph_text(found.version))
    else:
        click.echo(f"# {graph_text(found.version)}  {found.version.digest}")
        click.echo(dump_graph(found.definition), nl=False)


@graphs_group.command("show")
@click.argument("graph", required=False, default="", type=reference, shell_complete=complete_graph)
@click.option(
    "--run",
    "run_id",
    default="",
    shell_complete=complete_run,
    help="Show the path of this run. Without GRAPH: the graph of the run.",
)
@click.option("--mermaid", is_flag=True, help="Draw it in the language of Mermaid.")
@click.pass_obj
def show(settings: Settings, graph: str, run_id: str, *, mermaid: bool) -> None:
    """Draw GRAPH, or the graph of a run with its path, for a terminal or in the language of Mermaid.

    The ways that lead on from a node stand below it: ─▶ where one goes, ═▶ where the run went.
    """
    if not graph and not run_id:
        message = "name a graph, or a run with --run"
        raise click.UsageError(message)
    if mermaid:
        click.echo(perform(settings, lambda client: client.render_graph(graph, run_id=run_id)))
        return

    async def work(client: Client) -> tuple[GetGraphResponse, Footprints | None]:
        wanted = graph
        path: Footprints | None = None
        if run_id:
            run = await client.get_run(run_id)
            wanted = wanted or run.graph.digest
            path = await _footprints(client, run_id)
        return await client.get_graph(wanted), path

    found, path = perform(settings, work)
    out = Output(settings=settings)
    of_run = f", run {run_id}" if run_id else ""
    out.text(f"{graph_text(found.version)}{of_run}", "bold")
    for line in draw(found.definition, path):
        out.fitted(line.text, line.tone.value)
    if path is not None:
        out.prose(LEGEND, "dim")


async def _footprints(client: Client, run_id: str) -> Footprints:
    path = Footprints()
    view = WatchView.WATCH_VIEW_SUMMARY
    async for event in client.watch(run_id, view=view, history_only=True):
        if isinstance(event, RunEvent):
            path.take(event)
    return path


@graphs_group.command("list")
@click.argument("name", required=False, default="", shell_complete=complete_graph)
@click.option(
    "--limit",
    default=100,
    show_default=True,
    type=click.IntRange(min=1),
    help="The most graphs to list.",
)
@output_option(*LIST_FORMS)
@click.pass_obj
def list_graphs(settings: Settings, name: str, limit: int, *, out: Output) -> None:
    """List graphs with their latest versions, by name; with NAME the same as `graphs versions NAME`."""

    async def work(client: Client) -> tuple[list[GraphVersion], bool]:
        found: list[GraphVersion] = []
        async for version in client.list_graph_versions(name) if name else client.list_graphs():
            if len(found) == limit:
                return found, True
            found.append(version)
        return found, False

    versions, is_cut = perform(settings, work)
    _print_versions(versions, settings, out)
    if is_cut and out.is_for_people:
        click.echo(f"there are more than {limit}; --limit shows them", err=True)


@graphs_group.command("versions")
@click.argument("name", shell_complete=complete_graph)
@output_option(*LIST_FORMS)
@click.pass_obj
def versions(settings: Settings, name: str, *, out: Output) -> None:
    """List the versions of a graph, newest first."""

    async def work(client: Client) -> list[GraphVersion]:
        return [version async for version in client.list_graph_versions(name)]

    _print_versions(perform(settings, work), settings, out)


def _print_versions(found: list[GraphVersion], settings: Settings, out: Output) -> None:
    if out.documents(found, ids=graph_text):
        return
    out.table(
        COLUMNS,
        (
            (each.name, str(each.version), time_text(each.create_time), each.digest)
            for each in found
        ),
        empty=f"no graphs; register one with `{settings.command} graphs register FILE`",
    )


def _of_file(graph: GivenGraph) -> StateGraph:
    if graph.definition is None:
        message = f"there is no file {graph.reference!r}"
        raise click.UsageError(message)
    return graph.definition
