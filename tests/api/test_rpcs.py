"""Every RPC is served, and whatever goes wrong is a status with one ErrorInfo."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest
from google.protobuf.message_factory import GetMessageClass

from stepgraph.v1 import (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)
from stepgraph.v1.graph_service_pb2_grpc import GraphServiceStub
from stepgraph.v1.interrupt_service_pb2_grpc import InterruptServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph.v1.value_service_pb2_grpc import ValueServiceStub
from stepgraph_server.api.registration import KINDS
from stepgraph_server.storage.records import RunKey
from tests.support.failures import failure_of
from tests.support.graphs import graph

SERVICES = [
    service
    for module in (
        executor_service_pb2,
        graph_service_pb2,
        interrupt_service_pb2,
        run_service_pb2,
        value_service_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
]
METHODS = {
    f"/{service.full_name}/{method.name}": method
    for service in SERVICES
    for method in service.methods
}
UNARY = {path: m for path, m in METHODS.items() if not m.client_streaming}
UNSUPPORTED = {name.partition("/")[2] for name, kind in KINDS.items() if kind == "unsupported"}


def call(channel, path, method, request):
    """Call a method, whatever its shape."""
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    return make(
        path,
        request_serializer=lambda message: (
            message if isinstance(message, bytes) else message.SerializeToString()
        ),
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )(request)


@pytest.mark.parametrize("path", sorted(UNARY))
async def test_bytes_that_are_no_message_are_refused(channel, path):
    failure = await failure_of(call(channel, path, UNARY[path], b"\xff\xff\xff"))

    if path.rpartition("/")[2] in UNSUPPORTED:
        assert failure.reason in {"NOT_YET_SUPPORTED", "INVALID_REQUEST"}
    else:
        assert (failure.code, failure.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_REQUEST",
        )


@pytest.mark.parametrize("path", sorted(UNARY))
async def test_a_field_of_a_newer_client_is_refused_by_every_method(channel, path):
    # Field 500, a varint.
    failure = await failure_of(call(channel, path, UNARY[path], b"\xa0\x1f\x01"))

    if path.rpartition("/")[2] in UNSUPPORTED:
        assert (failure.code, failure.reason) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "NOT_YET_SUPPORTED",
        )
        assert failure.metadata == {"field": path.rpartition("/")[2]}
    else:
        assert (failure.code, failure.reason) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            "UNKNOWN_VARIANT",
        )


@pytest.mark.parametrize(
    "path", ["/stepgraph.v1.RunService/Explode", "/nobody.Knows/It", "/stepgraph.v2.RunService/X"]
)
async def test_a_method_that_does_not_exist_is_said_not_to(channel, path):
    unary = channel.unary_unary(path)
    # Its one message goes out with the call: where a client writes later, while the server ends the call, grpcio may put INTERNAL
    # in the place of the status that came (https://github.com/grpc/grpc/issues/36066). Our client tries again then.
    stream = channel.unary_stream(path)

    for each in (unary(b""), stream(b"")):
        failure = await failure_of(each)
        assert failure.code is grpc.StatusCode.UNIMPLEMENTED
        assert failure.reason == "METHOD_NOT_FOUND"


async def test_everything_that_is_wrong_comes_at_once(channel):
    request = run_service_pb2.StartRunRequest(run_id="?", labels={"": "x"})

    failure = await failure_of(RunServiceStub(channel).StartRun(request))

    fields = {v.field: v.reason for v in failure.details["BadRequest"].field_violations}
    assert fields == {
        "graph": "UNKNOWN_VARIANT",
        "run_id": "INVALID_REQUEST",
        'labels[""]': "INVALID_REQUEST",
    }


async def test_a_fault_gives_an_id_and_nothing_of_what_happened(channel, caplog):
    request = run_service_pb2.StartRunRequest(run_id="explode", graph={"reference": "g"})

    failure = await failure_of(RunServiceStub(channel).StartRun(request))

    assert (failure.code, failure.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL")
    assert "secret" not in failure.message
    assert failure.metadata["incident_id"] in failure.message
    assert "a secret payload" in caplog.text
    assert any(
        getattr(record, "incident_id", "") == failure.metadata["incident_id"]
        for record in caplog.records
    )


async def test_a_broken_graph_is_refused_with_its_problems_and_validated_with_all_of_them(channel):
    stub = GraphServiceStub(channel)
    broken = graph("a b", ["a > nowhere", "b > nobody"], entry_point="missing")

    failure = await failure_of(
        stub.RegisterGraph(graph_service_pb2.RegisterGraphRequest(graph=broken))
    )
    listed = await stub.ValidateGraph(graph_service_pb2.ValidateGraphRequest(graph=broken))

    assert (failure.code, failure.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "GRAPH_INVALID")
    assert int(failure.metadata["problems"]) == len(listed.problems) > 2
    assert failure.details["BadRequest"].field_violations[0].reason == listed.problems[0].code
    assert not (await stub.ListGraphs(graph_service_pb2.ListGraphsRequest())).versions


async def test_a_graph_is_registered_once_and_found_by_all_its_names(channel):
    stub = GraphServiceStub(channel)
    request = graph_service_pb2.RegisterGraphRequest(graph=graph("a b", ["a > b"]))

    first = await stub.RegisterGraph(request)
    again = await stub.RegisterGraph(request)

    assert (first.created, again.created) == (True, False)
    assert first.version == again.version
    for reference in ("g", "g@1", first.version.digest):
        got = await stub.GetGraph(graph_service_pb2.GetGraphRequest(graph=reference))
        assert (got.version, got.definition) == (first.version, request.graph)
    drawn = await stub.RenderGraph(graph_service_pb2.RenderGraphRequest(graph="g"))
    assert drawn.mermaid.startswith("flowchart")


async def test_namespaces_do_not_see_each_other(served, channel):
    await served.engine.create(RunKey("one", "r1"))
    await served.engine.ask(RunKey("one", "r1"), "i1")
    runs, interrupts = RunServiceStub(channel), InterruptServiceStub(channel)

    mine = await failure_of(
        runs.GetRun(run_service_pb2.GetRunRequest(namespace="two", run_id="r1"))
    )
    nobodys = await failure_of(
        runs.GetRun(run_service_pb2.GetRunRequest(namespace="two", run_id="r2"))
    )

    assert mine.message.replace("r1", "r2") == nobodys.message
    assert not (await runs.ListRuns(run_service_pb2.ListRunsRequest(namespace="two"))).runs
    listed = await interrupts.ListInterrupts(
        interrupt_service_pb2.ListInterruptsRequest(namespace="two")
    )
    assert not listed.questions
    failure = await failure_of(
        interrupts.GetInterrupt(
            interrupt_service_pb2.GetInterruptRequest(namespace="two", interrupt_id="i1")
        )
    )
    assert failure.reason == "INTERRUPT_NOT_FOUND"


async def test_a_value_is_written_in_pieces_and_read_from_anywhere(channel):
    stub = ValueServiceStub(channel)
    content = bytes(range(256)) * 10_000
    header = value_service_pb2.WriteValueRequest(
        header={"value": {"size_bytes": len(content), "form": 3, "media_type": "image/png"}}
    )
    chunks = [
        value_service_pb2.WriteValueRequest(chunk=content[start : start + 1_000_000])
        for start in range(0, len(content), 1_000_000)
    ]

    written = (await stub.WriteValue(iter([header, *chunks]))).value
    whole = [
        r async for r in stub.ReadValue(value_service_pb2.ReadValueRequest(digest=written.digest))
    ]
    tail = [
        r
        async for r in stub.ReadValue(
            value_service_pb2.ReadValueRequest(digest=written.digest, offset_bytes=len(content) - 5)
        )
    ]

    assert whole[0].value == written
    assert not any(r.HasField("value") for r in whole[1:])
    assert b"".join(r.chunk for r in whole) == content
    assert b"".join(r.chunk for r in tail) == content[-5:]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([], "INVALID_REQUEST"),
        ([value_service_pb2.WriteValueRequest(chunk=b"x")], "INVALID_REQUEST"),
        (
            [value_service_pb2.WriteValueRequest(header={"value": {"size_bytes": 1, "form": 1}})]
            * 2,
            "INVALID_REQUEST",
        ),
        (
            [
                value_service_pb2.WriteValueRequest(header={"value": {"size_bytes": 5, "form": 1}}),
                value_service_pb2.WriteValueRequest(chunk=b"x"),
            ],
            "INVALID_REQUEST",
        ),
        (
            [
                value_service_pb2.WriteValueRequest(
                    header={"value": {"size_bytes": 2_000_000, "form": 1}}
                ),
                value_service_pb2.WriteValueRequest(chunk=b"x" * 2_000_000),
            ],
            "PAYLOAD_TOO_LARGE",
        ),
        (
            [
                value_service_pb2.WriteValueRequest(header={"value": {"size_bytes": 1, "form": 1}}),
                value_service_pb2.WriteValueRequest(),
            ],
            "UNKNOWN_VARIANT",
        ),
    ],
    ids=["nothing", "no header", "two headers", "too short", "large chunk", "unknown part"],
)
async def test_a_value_that_is_not_what_it_says_is_not_stored(served, channel, parts, reason):
    failure = await failure_of(ValueServiceStub(channel).WriteValue(iter(parts)))

    assert failure.reason == reason


async def test_a_part_that_is_no_message_is_refused(channel):
    write = channel.stream_unary("/stepgraph.v1.ValueService/WriteValue")

    failure = await failure_of(write(iter([b"\xff\xff"])))

    assert failure.reason == "INVALID_REQUEST"


async def test_runs_are_paged_without_gaps(served, channel):
    for number in range(7):
        await served.engine.create(RunKey("default", f"r{number}"))
    stub = RunServiceStub(channel)
    pages, token = [], ""
    while True:
        response = await stub.ListRuns(
            run_service_pb2.ListRunsRequest(page_size=3, page_token=token)
        )
        pages.append([run.run_id for run in response.runs])
        token = response.next_page_token
        if not token:
            break

    assert pages == [["r6", "r5", "r4"], ["r3", "r2", "r1"], ["r0"]]


async def test_an_inline_graph_that_is_too_large_for_the_transport_leaves_the_channel_alive(
    served, channel
):
    stub = RunServiceStub(channel)
    await served.engine.create(RunKey("default", "r1"))
    huge = run_service_pb2.StartRunRequest(graph={"reference": "x" * 9_000_000})
    with pytest.raises(grpc.RpcError) as caught:
        await stub.StartRun(huge)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await stub.GetRun(run_service_pb2.GetRunRequest(run_id="r1"))).run.run_id == "r1"
