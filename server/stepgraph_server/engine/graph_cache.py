"""Compiled graphs, by the digest of their definition.

Rules: a definition is compiled once while it is in use; what is stored was valid when it was stored, so a graph that does
not compile any more is a fault of ours and quarantines the runs that need it.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import graph_pb2
from stepgraph_server.core import canonical
from stepgraph_server.core.canonical import CanonicalError
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.graph import compile_graph
from stepgraph_server.storage.graphs import GraphReference

if TYPE_CHECKING:
    from stepgraph_server.core.graph import CompiledGraph, GraphDefaults
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.graphs import Graphs
    from stepgraph_server.storage.records import GraphVersionRecord

#: Graphs that are kept compiled. A run in memory keeps its own, so this bounds only what is kept for runs to come.
MAX_CACHED: Final = 1_000


class GraphCache:
    """Compiled graphs of all namespaces."""

    def __init__(self, graphs: Graphs, defaults: GraphDefaults) -> None:
        self._graphs = graphs
        self._defaults = defaults
        self._compiled: OrderedDict[str, CompiledGraph] = OrderedDict()

    def compile(self, definition: graph_pb2.StateGraph) -> CompiledGraph:
        """Return a definition, compiled. Raises GraphInvalid with all problems."""
        # A caller that sends its graph with every start sends the same one: its digest costs a fraction of its check.
        # What has no digest has fields that nobody knows, which the check says better.
        with suppress(CanonicalError):
            compiled = self._compiled.get(canonical.digest(definition))
            if compiled is not None:
                self._compiled.move_to_end(compiled.digest)
                return compiled
        return self._keep(compile_graph(definition, self._defaults))

    async def by_digest(self, namespace: str, digest: str) -> CompiledGraph:
        """Return a stored graph, compiled. Raises Refused GRAPH_NOT_FOUND, GraphInvalid."""
        compiled = self._compiled.get(digest)
        if compiled is not None:
            self._compiled.move_to_end(digest)
            return compiled
        return (await self.by_reference(namespace, digest))[1]

    async def by_reference(
        self, namespace: str, reference: str
    ) -> tuple[GraphVersionRecord, CompiledGraph]:
        """Return the version that `name`, `name@3` or `sha256:…` stands for. Raises Refused GRAPH_NOT_FOUND."""
        try:
            parsed = GraphReference.parse(reference)
        except ValueError as error:
            raise Refused(
                "INVALID_REQUEST", str(error), metadata={"field": "graph.reference"}
            ) from error
        record = await self._graphs.get(namespace, parsed)
        if record is None:
            message = (
                f"there is no graph {reference!r} in namespace {namespace!r}; register it first"
            )
            raise Refused("GRAPH_NOT_FOUND", message, metadata={"graph": reference})
        compiled = self._compiled.get(record.digest)
        if compiled is None:
            compiled = self.compile(graph_pb2.StateGraph.FromString(record.definition))
        return record, compiled

    async def keep(self, namespace: str, graph: CompiledGraph, now: Instant) -> None:
        """Store a graph by its digest, without a name: a run is to walk it."""
        definition = graph.definition.SerializeToString(deterministic=True)
        await self._graphs.put(namespace, "", graph.digest, definition, now)

    def _keep(self, compiled: CompiledGraph) -> CompiledGraph:
        self._compiled[compiled.digest] = compiled
        self._compiled.move_to_end(compiled.digest)
        if len(self._compiled) > MAX_CACHED:
            self._compiled.popitem(last=False)
        return compiled
