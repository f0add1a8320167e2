"""Calls about graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import graph_service_pb2
from stepgraph_client.call_groups import PAGE_SIZE, CallGroup
from stepgraph_client.graphs import Graph
from stepgraph_client.identity import new_request_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.run_pb2 import GraphVersion


class GraphCalls(CallGroup):
    """Registers, validates, reads and draws graphs."""

    async def register_graph(
        self, graph: StateGraph | Graph
    ) -> graph_service_pb2.RegisterGraphResponse:
        """Store a graph under its name. The same content again gives the version that exists.

        Raises:
            GraphInvalid: it is broken; nothing was stored.
        """
        request = graph_service_pb2.RegisterGraphRequest(
            namespace=self.namespace, graph=_definition(graph), request_id=new_request_id()
        )
        return await self._caller.unary(self._stubs.graphs.RegisterGraph, request)

    async def validate_graph(
        self, graph: StateGraph | Graph
    ) -> graph_service_pb2.ValidateGraphResponse:
        """List all problems of a graph, and what is legal but odd. Nothing is stored."""
        request = graph_service_pb2.ValidateGraphRequest(
            namespace=self.namespace, graph=_definition(graph)
        )
        return await self._caller.unary(self._stubs.graphs.ValidateGraph, request)

    async def get_graph(self, graph: str) -> graph_service_pb2.GetGraphResponse:
        """Read one version: `name` (the latest), `name@3`, or `sha256:…`."""
        request = graph_service_pb2.GetGraphRequest(namespace=self.namespace, graph=graph)
        return await self._caller.unary(self._stubs.graphs.GetGraph, request)

    async def render_graph(self, graph: str = "", *, run_id: str = "") -> str:
        """Draw a graph in the language of Mermaid; with a run, its path too."""
        request = graph_service_pb2.RenderGraphRequest(
            namespace=self.namespace, graph=graph, run_id=run_id
        )
        response = await self._caller.unary(self._stubs.graphs.RenderGraph, request)
        return response.mermaid

    async def list_graphs(self) -> AsyncIterator[GraphVersion]:
        """Yield the latest version of each graph, by name."""
        request = graph_service_pb2.ListGraphsRequest(namespace=self.namespace, page_size=PAGE_SIZE)
        async for page in self._pages(self._stubs.graphs.ListGraphs, request):
            for version in page.versions:
                yield version

    async def list_graph_versions(self, name: str) -> AsyncIterator[GraphVersion]:
        """Yield the versions of a graph, newest first."""
        request = graph_service_pb2.ListGraphVersionsRequest(
            namespace=self.namespace, name=name, page_size=PAGE_SIZE
        )
        async for page in self._pages(self._stubs.graphs.ListGraphVersions, request):
            for version in page.versions:
                yield version


def _definition(graph: StateGraph | Graph) -> StateGraph:
    return graph.build() if isinstance(graph, Graph) else graph
