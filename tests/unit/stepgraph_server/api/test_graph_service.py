"""Graphs are stored once by their content, found by name, version and digest, and drawn with the way of a run."""

from __future__ import annotations

import pytest

from stepgraph.v1 import graph_service_pb2 as pb
from stepgraph_server.api import graph_service
from stepgraph_server.api.graph_service import GraphService
from stepgraph_server.core.errors import GraphInvalid
from stepgraph_server.core.policies import GraphDefaults
from stepgraph_server.engine.clock import SystemClock
from stepgraph_server.storage.records import RunKey
from tests.support.graphs import graph


@pytest.fixture
def service(store, pages):
    return GraphService(store=store, defaults=GraphDefaults(), clock=SystemClock(), pages=pages)


@pytest.fixture
def register(service, context):
    async def register(*args, request_id="", namespace="", **fields):
        request = pb.RegisterGraphRequest(
            graph=graph(*args, **fields), request_id=request_id, namespace=namespace
        )
        return await service.RegisterGraph(request, context)

    return register


async def test_the_same_content_is_the_same_version_and_other_content_the_next(register):
    first = await register("a")
    again = await register("a")
    other = await register("a b", ["a > b"])

    assert [(r.version.version, r.created) for r in (first, again, other)] == [
        (1, True),
        (1, False),
        (2, True),
    ]
    assert first.version.digest == again.version.digest != other.version.digest
    assert first.version.create_time.seconds > 0


async def test_namespaces_have_their_own_versions(register, service, context, reason_of):
    await register("a", namespace="one")

    call = service.GetGraph(pb.GetGraphRequest(namespace="two", graph="g"), context)
    assert await reason_of(call) == "GRAPH_NOT_FOUND"


async def test_a_broken_graph_is_not_stored(register, service, context):
    with pytest.raises(GraphInvalid):
        await register("a", ["a > nowhere"])

    assert not (await service.ListGraphs(pb.ListGraphsRequest(), context)).versions


async def test_a_repeated_request_gets_the_first_response(register):
    first = await register("a", request_id="x")
    await register("a b", ["a > b"])
    again = await register("a", request_id="x")

    assert again == first
    assert again.created


async def test_a_request_id_for_two_graphs_is_a_mistake(register, reason_of):
    await register("a", request_id="x")

    assert await reason_of(register("a b", ["a > b"], request_id="x")) == "REQUEST_ID_REUSED"


async def test_of_two_requests_with_one_id_at_the_same_time_the_first_record_stands(
    register, service, store, monkeypatch
):
    first = await register("a", request_id="x")

    async def nothing_yet(*_):
        return None

    monkeypatch.setattr(store.requests, "get", nothing_yet)
    assert await register("a", request_id="x") == first


async def test_validating_lists_problems_and_warnings_and_stores_nothing(service, context):
    request = pb.ValidateGraphRequest(graph=graph("a b", ["a > nowhere"]))

    response = await service.ValidateGraph(request, context)

    assert {p.code for p in response.problems} == {"UNKNOWN_NODE", "UNREACHABLE_NODE"}
    assert all(p.path and p.message for p in response.problems)
    assert not (await service.ListGraphs(pb.ListGraphsRequest(), context)).versions


async def test_large_graphs_are_checked_off_the_loop_with_the_same_result(register, monkeypatch):
    monkeypatch.setattr(graph_service, "OFF_LOOP_BYTES", 1)

    assert (await register("a")).created
    with pytest.raises(GraphInvalid):
        await register("a", ["a > nowhere"])


async def test_names_are_listed_with_their_latest_version_in_pages(register, service, context):
    for name in ("c", "a", "b"):
        await register("x", name=name)
    await register("x y", ["x > y"], name="a")

    first = await service.ListGraphs(pb.ListGraphsRequest(), context)
    second = await service.ListGraphs(
        pb.ListGraphsRequest(page_token=first.next_page_token), context
    )

    assert [(v.name, v.version) for v in first.versions] == [("a", 2), ("b", 1)]
    assert [(v.name, v.version) for v in second.versions] == [("c", 1)]
    assert not second.next_page_token


async def test_versions_are_listed_newest_first_in_pages(register, service, context, reason_of):
    for count in (1, 2, 3):
        await register(" ".join("abc"[:count]), [f"a > {n}" for n in "abc"[1:count]])

    first = await service.ListGraphVersions(pb.ListGraphVersionsRequest(name="g"), context)
    second = await service.ListGraphVersions(
        pb.ListGraphVersionsRequest(name="g", page_token=first.next_page_token), context
    )

    assert [v.version for v in first.versions] == [3, 2]
    assert [v.version for v in second.versions] == [1]
    missing = service.ListGraphVersions(pb.ListGraphVersionsRequest(name="x"), context)
    assert await reason_of(missing) == "GRAPH_NOT_FOUND"


async def test_a_graph_is_drawn_with_the_way_of_a_run(register, service, context, engine, store):
    version = (await register("node")).version
    key = RunKey("default", "r1")
    await engine.create(key)
    await engine.go_on(key, 3)

    plain = await service.RenderGraph(pb.RenderGraphRequest(graph="g"), context)
    walked = await service.RenderGraph(pb.RenderGraphRequest(graph="g", run_id="r1"), context)

    assert plain.version == walked.version == version
    assert "ran 3 times" in walked.mermaid
    assert "ran" not in plain.mermaid


async def test_the_graph_of_a_run_is_found_by_the_run(service, context, engine, reason_of):
    await engine.create(RunKey("default", "r1"))

    # The stand-in's runs have a digest that is nobody's.
    call = service.RenderGraph(pb.RenderGraphRequest(run_id="r1"), context)
    assert await reason_of(call) == "GRAPH_NOT_FOUND"
    call = service.RenderGraph(pb.RenderGraphRequest(run_id="r2"), context)
    assert await reason_of(call) == "RUN_NOT_FOUND"
