"""What references to graphs stand for: looked up once, and the same for a root and all runs below it from then on.

Rules: a graph is looked up together with all that it leads to, so whoever walks it finds what it names. Whether something is there is
asked when a root starts, or when a step program names it; never again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import run_pb2
from stepgraph_server.core.errors import Refused, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.references import Reference
    from stepgraph_server.engine.graph_cache import GraphCache
    from stepgraph_server.storage.records import GraphVersionRecord

MAX_RESOLVED: Final = 256
"""Different references in one tree of runs: every child run's first event has them all."""


async def resolve(
    graphs: GraphCache,
    namespace: str,
    references: Iterable[Reference],
    known: Mapping[str, run_pb2.GraphVersion],
) -> dict[str, run_pb2.GraphVersion]:
    """Return what references stand for that are not known yet, and those of the graphs that they lead to.

    Raises:
        Refused: GRAPH_NOT_FOUND: with the path of the reference; INVALID_REQUEST: there are too many.
    """
    found: dict[str, run_pb2.GraphVersion] = {}
    waiting = deque(references)
    while waiting:
        path, reference = waiting.popleft()
        if reference in known or reference in found:
            continue
        if len(known) + len(found) >= MAX_RESOLVED:
            message = f"{path}: a run and all its child runs may name at most {MAX_RESOLVED} graphs; name fewer"
            raise Refused("INVALID_REQUEST", message, metadata={"field": path})
        record, graph = await _look_up(graphs, namespace, path, reference)
        found[reference] = run_pb2.GraphVersion(
            name=record.name, version=record.version, digest=record.digest
        )
        waiting.extend(each._replace(path=f"{reference}: {each.path}") for each in graph.references)
    return found


async def _look_up(
    graphs: GraphCache, namespace: str, path: str, reference: str
) -> tuple[GraphVersionRecord, CompiledGraph]:
    try:
        return await graphs.by_reference(namespace, reference)
    except Refused as refused:
        if refused.reason != "GRAPH_NOT_FOUND":
            raise
        violation = Violation(path=path, message=refused.message, reason=refused.reason)
        raise Refused(
            refused.reason,
            f"{path}: {refused.message}",
            metadata=refused.metadata,
            violations=[violation],
        ) from refused
