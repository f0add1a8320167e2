"""`stepgraph graphs …`: check, register and read graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepgraph_client.command.calling import CommandError, Settings, perform
from stepgraph_client.command.output import plain, print_json, print_table
from stepgraph_client.command.parameters import GivenGraph, given_graph, reference
from stepgraph_client.command.problems import all_problems, problem_lines
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

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group("graphs")
def graphs_group() -> None:
    """Check, register and read graphs."""


@graphs_group.command("register")
@click.argument("file")
@json_option
@click.pass_obj
def register(settings: Settings, file: str, *, as_json: bool) -> None:
    """Store the graph of FILE under its name. Other content makes a new version; the same content does not."""
    graph = given_graph(file)
    definition = _of_file(graph)

    async def work(client: Client) -> RegisterGraphResponse:
        try:
            return await client.register_graph(definition)
        except GraphInvalid as error:
            raise await all_problems(client, graph, error) from error

    registered = perform(settings, work)
    if as_json:
        print_json(plain(registered))
        return
    word = "registered" if registered.created else "there already:"
    click.echo(f"{word} {graph_text(registered.version)} ({registered.version.digest})")
    for line in problem_lines(registered.warnings, graph.source, "warning"):
        click.echo(line, err=True)


@graphs_group.command("validate")
@click.argument("file")
@json_option
@click.pass_obj
def validate(settings: Settings, file: str, *, as_json: bool) -> None:
    """List all problems of the graph of FILE, with their lines. Nothing is stored. Ends with 3 if there are any."""
    graph = given_graph(file)
    definition = _of_file(graph)

    async def work(client: Client) -> ValidateGraphResponse:
        return await client.validate_graph(definition)

    checked = perform(settings, work)
    if as_json:
        print_json(plain(checked))
    else:
        for line in problem_lines(checked.problems, graph.source):
            click.echo(line)
        for line in problem_lines(checked.warnings, graph.source, "warning"):
            click.echo(line)
    if checked.problems:
        count = len(checked.problems)
        message = f"{file} has {count} problem{'' if count == 1 else 's'}"
        raise CommandError(message)
    if not as_json:
        nodes, edges = len(definition.nodes), len(definition.edges)
        click.echo(f"{definition.name} is fine (nodes: {nodes}, edges: {edges})")


@graphs_group.command("get")
@click.argument("graph", type=reference)
@json_option
@click.pass_obj
def get(settings: Settings, graph: str, *, as_json: bool) -> None:
    """Print the definition of GRAPH as YAML, as a file that can be registered again."""

    async def work(client: Client) -> GetGraphResponse:
        return await client.get_graph(graph)

    found = perform(settings, work)
    if as_json:
        print_json(plain(found))
    else:
        click.echo(f"# {graph_text(found.version)}  {found.version.digest}")
        click.echo(dump_graph(found.definition), nl=False)


@graphs_group.command("show")
@click.argument("graph", required=False, default="", type=reference)
@click.option("--run", "run_id", default="", help="Show the path of this run.")
@click.pass_obj
def show(settings: Settings, graph: str, run_id: str) -> None:
    """Draw GRAPH, or the graph of a run with its path, in the language of Mermaid."""
    if not graph and not run_id:
        message = "name a graph, or a run with --run"
        raise click.UsageError(message)

    async def work(client: Client) -> str:
        return await client.render_graph(graph, run_id=run_id)

    click.echo(perform(settings, work))


@graphs_group.command("list")
@click.argument("name", required=False, default="")
@json_option
@click.pass_obj
def list_graphs(settings: Settings, name: str, *, as_json: bool) -> None:
    """List graphs with their latest versions; with NAME, all versions of that graph, newest first."""

    async def work(client: Client) -> list[GraphVersion]:
        found = client.list_graph_versions(name) if name else client.list_graphs()
        return [version async for version in found]

    versions = perform(settings, work)
    if as_json:
        print_json([plain(version) for version in versions])
        return
    print_table(
        ("GRAPH", "VERSION", "REGISTERED", "DIGEST"),
        (
            (each.name, str(each.version), time_text(each.create_time), each.digest)
            for each in versions
        ),
        empty=f"no graphs; register one with `{settings.command} graphs register FILE`",
    )


def _of_file(graph: GivenGraph) -> StateGraph:
    if graph.definition is None:
        message = f"there is no file {graph.reference!r}"
        raise click.UsageError(message)
    return graph.definition
