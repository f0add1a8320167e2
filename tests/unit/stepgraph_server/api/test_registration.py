"""Each RPC has a line in the table, and whatever a servicer raises becomes a status."""

from __future__ import annotations

import asyncio
import logging

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from stepgraph.v1 import (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)
from stepgraph_server.api.changes import Changes
from stepgraph_server.api.errors import StatusMaker
from stepgraph_server.api.gate import Gate
from stepgraph_server.api.registration import KINDS, RAW_REQUESTS, Registration, to_bytes
from stepgraph_server.api.requests import RULES
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import SECOND

SERVICES = {
    service.name: service
    for module in (
        executor_service_pb2,
        graph_service_pb2,
        interrupt_service_pb2,
        run_service_pb2,
        value_service_pb2,
        health_pb2,
    )
    for service in module.DESCRIPTOR.services_by_name.values()
}
METHODS = {
    f"{service.name}/{method.name}": method
    for service in SERVICES.values()
    for method in service.methods
}


class Aborted(grpc.aio.AbortError):
    def __init__(self, code, message, trailers):
        super().__init__(message)
        self.code = code
        self.message = message
        self.trailers = trailers


AS_IT_WAS = Aborted("as it was", "", ())


class FakeContext:
    async def abort(self, code, message, trailers=()):
        raise Aborted(code, message, trailers)


class Servicer:
    """Does what a test says, whatever is asked."""

    def __init__(self, do):
        self.do = do

    def __getattr__(self, name):
        return self.do


@pytest.fixture
def gate():
    return Gate(max_watchers=1, max_sessions=1, retry_after=SECOND)


@pytest.fixture
async def handler(gate, checker):
    async with Changes(10) as changes:
        registration = Registration(
            gate=gate,
            changes=changes,
            checker=checker,
            statuses=StatusMaker(logging.getLogger("stepgraph_server.test")),
        )

        def handler(name, do):
            service = SERVICES[name.partition("/")[0]]
            details = HandlerCallDetails(f"/{service.full_name}/{name.partition('/')[2]}")
            return registration.handlers(service, Servicer(do)).service(details)

        handler.registration = registration
        yield handler


class HandlerCallDetails:
    def __init__(self, method):
        self.method = method
        self.invocation_metadata = ()


async def respond(request, context):
    return run_service_pb2.GetRunResponse()


def test_each_method_of_each_service_has_a_line_and_there_are_no_others():
    assert KINDS.keys() == METHODS.keys()


def test_each_checked_method_has_a_rule_for_its_request():
    checked = {
        METHODS[name].input_type.name
        for name, kind in KINDS.items()
        if kind in {"read", "change", "watch"}
    }

    assert checked == RULES.keys()


def test_what_changes_something_is_a_change():
    for name, method in METHODS.items():
        has_id = "request_id" in method.input_type.fields_by_name
        assert not has_id or KINDS[name] in {"change", "unsupported"}, name


def test_streams_that_stay_are_those_that_may_be_endless():
    endless = {name for name, kind in KINDS.items() if kind in {"watch", "session"}}

    assert endless == {
        "RunService/StartAndWatchRun",
        "RunService/WatchRun",
        "RunService/WatchRuns",
        "ExecutorService/Connect",
    }
    assert {"ExecutorService/Connect"} == RAW_REQUESTS


@pytest.mark.parametrize("name", sorted(METHODS))
async def test_a_handler_has_the_shape_of_its_method(handler, name):
    method = METHODS[name]

    found = handler(name, respond)

    assert found.request_streaming is method.client_streaming
    assert found.response_streaming is method.server_streaming
    assert found.response_serializer is to_bytes


async def test_a_message_is_serialized_and_bytes_are_left_alone():
    message = run_service_pb2.GetRunResponse(run={"run_id": "r"})

    assert to_bytes(message) == message.SerializeToString()
    assert to_bytes(b"raw") == b"raw"


async def test_a_read_is_checked_and_answered(handler):
    found = handler("RunService/GetRun", respond)
    request = found.request_deserializer(
        run_service_pb2.GetRunRequest(run_id="r").SerializeToString()
    )

    assert await found.unary_unary(request, FakeContext()) == run_service_pb2.GetRunResponse()
    with pytest.raises(Aborted) as caught:
        await found.unary_unary(run_service_pb2.GetRunRequest(), FakeContext())
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["RunService/GetRun", "RunService/WatchRun"])
async def test_bytes_that_are_no_message_are_refused(handler, name):
    found = handler(name, respond)
    request = found.request_deserializer(b"\xff")

    call = (
        anext(found.unary_stream(request, FakeContext()))
        if found.response_streaming
        else found.unary_unary(request, FakeContext())
    )
    with pytest.raises(Aborted) as caught:
        await call

    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_refusal_and_a_fault_become_statuses_and_an_abort_stays_one(handler):
    errors = [Refused("RUN_NOT_FOUND", "no"), KeyError("x"), AS_IT_WAS]
    codes = []
    for error in errors:

        async def fail(request, context, error=error):
            raise error

        found = handler("RunService/GetRun", fail)
        with pytest.raises(Aborted) as caught:
            await found.unary_unary(run_service_pb2.GetRunRequest(run_id="r"), FakeContext())
        codes.append(caught.value.code)

    assert codes == [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INTERNAL, "as it was"]


async def test_a_change_goes_on_when_its_call_is_cancelled(handler):
    done = asyncio.Event()

    async def change(request, context):
        await asyncio.sleep(0.01)
        done.set()

    found = handler("RunService/CancelRun", change)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(
            found.unary_unary(run_service_pb2.CancelRunRequest(run_id="r"), FakeContext()), 0.001
        )
    await asyncio.wait_for(done.wait(), 5)


@pytest.mark.parametrize(
    "name", sorted(name for name, kind in KINDS.items() if kind == "unsupported")
)
async def test_what_is_not_supported_says_so(handler, name):
    found = handler(name, respond)

    with pytest.raises(Aborted) as caught:
        await found.unary_unary(METHODS[name], FakeContext())

    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED


async def watch(request, context):
    yield b"first"
    await asyncio.Event().wait()


WATCH = run_service_pb2.WatchRunRequest(run_id="r")


async def test_a_stream_that_is_ended_says_why(handler, gate):
    found = handler("RunService/WatchRun", watch)
    seen = []

    async def read():
        try:
            async for data in found.unary_stream(WATCH, FakeContext()):
                seen.append(data)  # noqa: PERF401  # it never ends by itself
        except Aborted as aborted:
            return aborted.code

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        await asyncio.sleep(0.01)
        gate.end_streams("watch")

    assert (seen, reading.result()) == ([b"first"], grpc.StatusCode.UNAVAILABLE)
    assert gate.count("watch") == 0


async def test_a_stream_whose_caller_leaves_is_just_cancelled(handler, gate):
    found = handler("RunService/WatchRun", watch)

    async def read():
        async for _ in found.unary_stream(WATCH, FakeContext()):
            pass

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(), 0.01)

    assert gate.count("watch") == 0


async def test_a_stream_that_fails_becomes_a_status(handler):
    async def fail(request, context):
        yield b"first"
        raise Refused("RUN_QUARANTINED", "unreadable")

    stream = handler("RunService/WatchRun", fail).unary_stream(WATCH, FakeContext())

    assert await anext(stream) == b"first"
    with pytest.raises(Aborted) as caught:
        await anext(stream)
    assert caught.value.code is grpc.StatusCode.DATA_LOSS


async def test_an_abort_within_a_stream_stays_one(handler):
    async def fail(request, context):
        yield b"first"
        raise AS_IT_WAS

    stream = handler("RunService/WatchRun", fail).unary_stream(WATCH, FakeContext())
    await anext(stream)

    with pytest.raises(Aborted) as caught:
        await anext(stream)
    assert caught.value is AS_IT_WAS


async def test_nobody_comes_in_while_the_server_stops_but_probes(handler, gate):
    gate.shut()

    async def probe(request, context):
        return health_pb2.HealthCheckResponse()

    assert await handler("Health/Check", probe).unary_unary(None, FakeContext())
    with pytest.raises(Aborted) as caught:
        await handler("RunService/GetRun", respond).unary_unary(
            run_service_pb2.GetRunRequest(run_id="r"), FakeContext()
        )
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


async def test_the_parts_of_an_upload_are_decoded(handler):
    async def count(requests, context):
        return len([part async for part in requests])

    found = handler("ValueService/WriteValue", count)

    async def parts(*data):
        for one in data:
            yield found.request_deserializer(one)

    assert await found.stream_unary(parts(b"", b""), FakeContext()) == 2
    with pytest.raises(Aborted) as caught:
        await found.stream_unary(parts(b"", b"\xff"), FakeContext())
    assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_frames_of_sessions_are_left_alone(handler):
    async def echo(requests, context):
        async for frame in requests:
            yield frame

    async def frames():
        yield found.request_deserializer(b"\xff\xff")

    found = handler("ExecutorService/Connect", echo)

    assert [data async for data in found.stream_stream(frames(), FakeContext())] == [b"\xff\xff"]


async def test_a_method_that_nobody_knows_is_said_not_to_exist(handler):
    unknown = handler.registration.unknown_methods()
    found = unknown.service(HandlerCallDetails("/a.B/C"))

    with pytest.raises(Aborted, match=r"/a\.B/C") as caught:
        await anext(found.stream_stream(None, FakeContext()))

    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
