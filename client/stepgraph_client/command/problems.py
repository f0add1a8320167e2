"""Problems of graphs, as lines with their places in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_client.command.calling import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepgraph.v1.graph_service_pb2 import GraphProblem
    from stepgraph_client.client import Client
    from stepgraph_client.command.parameters import GivenGraph
    from stepgraph_client.errors import GraphInvalid
    from stepgraph_client.files import SourceMap


def problem_lines(
    problems: Iterable[GraphProblem], source: SourceMap | None, kind: str = "error"
) -> Iterator[str]:
    """Yield a problem as compilers do: place, kind, what is wrong, and on a second line what to do."""
    for problem in problems:
        place = f"{source.locate(problem.path)}: " if source is not None else ""
        path = f" (at {problem.path})" if problem.path else ""
        yield f"{place}{kind}: {problem.message}{path} [{problem.code}]"
        if problem.hint:
            yield f"    {problem.hint}"


async def all_problems(client: Client, graph: GivenGraph, refusal: GraphInvalid) -> CommandError:
    """Return the end of a command for a broken graph: with all problems, where a refusal has the first ones."""
    if graph.definition is None:
        return CommandError(str(refusal))
    checked = await client.validate_graph(graph.definition)
    count = len(checked.problems)
    name = graph.reference
    head = f"{name} has {count} problem{'' if count == 1 else 's'}; nothing was stored"
    return CommandError("\n".join([head, *problem_lines(checked.problems, graph.source)]))
