"""GraphService: register, check, read, list and draw graphs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from stepgraph.v1 import event_pb2, graph_pb2, graph_service_pb2, run_pb2
from stepgraph_server.api import paging
from stepgraph_server.api.callers import request_key
from stepgraph_server.api.footprints import Footprints
from stepgraph_server.api.requests import namespace_of
from stepgraph_server.core import canonical
from stepgraph_server.core.errors import GraphInvalid, Problem, Refused
from stepgraph_server.core.graph import check_graph, compile_graph
from stepgraph_server.core.instants import to_timestamp
from stepgraph_server.core.references import references_of
from stepgraph_server.core.render import render
from stepgraph_server.core.validation.codes import WarningCode
from stepgraph_server.engine.references import MAX_RESOLVED
from stepgraph_server.storage.graphs import GraphReference
from stepgraph_server.storage.records import RequestRecord, RunKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepgraph_server.api.ports import Context
    from stepgraph_server.config import PageSettings
    from stepgraph_server.core.policies import GraphDefaults
    from stepgraph_server.core.render import WalkedPath
    from stepgraph_server.core.validation.report import Findings
    from stepgraph_server.engine.callers import RequestKey
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.storage.records import GraphVersionRecord, RunRecord
    from stepgraph_server.storage.store import Store

T = TypeVar("T")

OFF_LOOP_BYTES: Final = 64 * 1024
"""Checking a graph above this takes long enough to hold up everyone else on the loop."""

READ_BYTES: Final = 1024 * 1024


class GraphService:
    """See graph_service.proto."""

    def __init__(
        self, *, store: Store, defaults: GraphDefaults, clock: Clock, pages: PageSettings
    ) -> None:
        self._store = store
        self._defaults = defaults
        self._clock = clock
        self._pages = pages

    async def RegisterGraph(
        self, request: graph_service_pb2.RegisterGraphRequest, context: Context
    ) -> graph_service_pb2.RegisterGraphResponse:
        """Store a graph; the same content gives the version that exists."""
        namespace = namespace_of(request)
        key = request_key("RegisterGraph", request)
        if key is not None:
            record = await self._store.requests.get(namespace, key.method, key.request_id)
            if record is not None:
                return _first_response(record, key)
        findings = await self._check(request.graph, namespace)
        if findings.problems:
            raise GraphInvalid(findings.problems)
        version, created = await self._store.graphs.put(
            namespace,
            request.graph.name,
            canonical.digest(request.graph),
            request.graph.SerializeToString(deterministic=True),
            self._clock.now(),
        )
        response = graph_service_pb2.RegisterGraphResponse(
            version=version_of(version), created=created, warnings=_problems(findings.warnings)
        )
        if key is None:
            return response
        # Two with one id may have come as far as this together; the first one's record stands.
        record = await self._store.requests.put(
            namespace,
            RequestRecord(
                method=key.method,
                request_id=key.request_id,
                fingerprint=key.fingerprint,
                response=response.SerializeToString(),
                create_time=self._clock.now(),
            ),
        )
        return _first_response(record, key)

    async def ValidateGraph(
        self, request: graph_service_pb2.ValidateGraphRequest, context: Context
    ) -> graph_service_pb2.ValidateGraphResponse:
        """List everything that is wrong or odd."""
        findings = await self._check(request.graph, namespace_of(request))
        return graph_service_pb2.ValidateGraphResponse(
            problems=_problems(findings.problems), warnings=_problems(findings.warnings)
        )

    async def GetGraph(
        self, request: graph_service_pb2.GetGraphRequest, context: Context
    ) -> graph_service_pb2.GetGraphResponse:
        """Read one version."""
        record = await self._get(namespace_of(request), request.graph)
        return graph_service_pb2.GetGraphResponse(
            version=version_of(record), definition=_definition(record)
        )

    async def ListGraphs(
        self, request: graph_service_pb2.ListGraphsRequest, context: Context
    ) -> graph_service_pb2.ListGraphsResponse:
        """List names with their latest versions."""
        position = paging.decode_page(request.page_token, request, (str,))
        limit = paging.entries(request.page_size, self._pages)
        found = await self._store.graphs.list_names(
            namespace_of(request), str(position[0]) if position else "", limit + 1
        )
        response = graph_service_pb2.ListGraphsResponse(
            versions=[version_of(record) for record in found[:limit]]
        )
        if len(found) > limit:
            response.next_page_token = paging.encode(request, (found[limit - 1].name,))
        return response

    async def ListGraphVersions(
        self, request: graph_service_pb2.ListGraphVersionsRequest, context: Context
    ) -> graph_service_pb2.ListGraphVersionsResponse:
        """List the versions of a name, newest first."""
        position = paging.decode_page(request.page_token, request, (int,))
        limit = paging.entries(request.page_size, self._pages)
        found = await self._store.graphs.list_versions(
            namespace_of(request), request.name, int(position[0]) if position else None, limit + 1
        )
        if not found and position is None:
            raise _not_found(request.name)
        response = graph_service_pb2.ListGraphVersionsResponse(
            versions=[version_of(record) for record in found[:limit]]
        )
        if len(found) > limit:
            response.next_page_token = paging.encode(request, (found[limit - 1].version,))
        return response

    async def RenderGraph(
        self, request: graph_service_pb2.RenderGraphRequest, context: Context
    ) -> graph_service_pb2.RenderGraphResponse:
        """Draw a graph, with the path of a run."""
        namespace = namespace_of(request)
        path: WalkedPath | None = None
        reference = request.graph
        if request.run_id:
            run = await self._run(RunKey(namespace, request.run_id))
            reference = reference or run.creation.graph_digest
            path = await self._path(run.key)
        record = await self._get(namespace, reference)
        return graph_service_pb2.RenderGraphResponse(
            mermaid=await self._off_loop(record.definition, lambda: self._draw(record, path)),
            version=version_of(record),
        )

    def _draw(self, record: GraphVersionRecord, path: WalkedPath | None) -> str:
        return render(compile_graph(_definition(record), self._defaults), path)

    async def _check(self, graph: graph_pb2.StateGraph, namespace: str) -> Findings:
        content = graph.SerializeToString()
        findings = await self._off_loop(content, lambda: check_graph(graph, self._defaults))
        if findings.problems:
            return findings
        missing = await self._missing_graphs(graph, namespace)
        return replace(findings, warnings=(*findings.warnings, *missing)) if missing else findings

    async def _missing_graphs(self, graph: graph_pb2.StateGraph, namespace: str) -> list[Problem]:
        """Return a warning for each graph that is named and not there yet, of as many as one run may name."""
        named = {each.reference: each.path for each in references_of(graph)}
        missing = []
        for reference, path in list(named.items())[:MAX_RESOLVED]:
            if await self._store.graphs.get(namespace, GraphReference.parse(reference)) is None:
                message = f"there is no graph {reference!r} in this namespace yet"
                hint = "Register it before a run starts."
                code = WarningCode.GRAPH_NOT_THERE
                missing.append(Problem(code=code, path=path, message=message, hint=hint))
        return missing

    async def _off_loop(self, definition: bytes, work: Callable[[], T]) -> T:
        """Do work on another thread if it would hold up everyone else on the loop: if the graph is large."""
        if len(definition) > OFF_LOOP_BYTES:
            return await asyncio.to_thread(work)
        return work()

    async def _get(self, namespace: str, reference: str) -> GraphVersionRecord:
        record = await self._store.graphs.get(namespace, GraphReference.parse(reference))
        if record is None:
            raise _not_found(reference)
        return record

    async def _run(self, key: RunKey) -> RunRecord:
        run = await self._store.runs.get(key)
        if run is None:
            raise Refused(
                "RUN_NOT_FOUND", f"there is no run {key.run_id}", metadata={"run_id": key.run_id}
            )
        return run

    async def _path(self, key: RunKey) -> WalkedPath:
        footprints, after = Footprints(), 0
        while batches := await self._store.journal.read(key, after, READ_BYTES):
            for batch in batches:
                for event in event_pb2.EventBatch.FromString(batch.batch).events:
                    footprints.add(event)
                # Parsing takes the loop's time: others have their turn in between.
                await asyncio.sleep(0)
            after = batches[-1].last_sequence
        return footprints.path()


def version_of(record: GraphVersionRecord) -> run_pb2.GraphVersion:
    """Return a stored version as callers see it."""
    return run_pb2.GraphVersion(
        name=record.name,
        version=record.version,
        digest=record.digest,
        create_time=to_timestamp(record.create_time),
    )


def _definition(record: GraphVersionRecord) -> graph_pb2.StateGraph:
    return graph_pb2.StateGraph.FromString(record.definition)


def _first_response(
    record: RequestRecord, key: RequestKey
) -> graph_service_pb2.RegisterGraphResponse:
    if record.fingerprint != key.fingerprint:
        raise Refused(
            "REQUEST_ID_REUSED",
            f"request_id {key.request_id} was used for another graph; use a new one",
            metadata={"request_id": key.request_id},
        )
    return graph_service_pb2.RegisterGraphResponse.FromString(record.response)


def _problems(problems: Iterable[Problem]) -> list[graph_service_pb2.GraphProblem]:
    return [
        graph_service_pb2.GraphProblem(
            code=problem.code, path=problem.path, message=problem.message, hint=problem.hint
        )
        for problem in problems
    ]


def _not_found(reference: str) -> Refused:
    return Refused(
        "GRAPH_NOT_FOUND",
        f"there is no graph {reference} in this namespace; register it first",
        metadata={"graph": reference},
    )
