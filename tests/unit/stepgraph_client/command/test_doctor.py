"""What the doctor finds at a server that is well, and at servers that are not."""

from __future__ import annotations

import asyncio
import socket
import threading

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import executor_service_pb2_grpc as executors_grpc
from stepgraph_client import transfers
from stepgraph_client.command import doctor
from stepgraph_client.command.calling import Settings as CommandSettings
from stepgraph_client.command.doctor import Verdict, clock_finding, version_finding
from stepgraph_server import app
from stepgraph_server.config import Settings
from tests.support.fake_server import LOST

CHECKS = (
    *("name", "reachable", "alive", "ready", "reflection", "session", "version", "limits"),
    *("clock", "sizes", "journal", "executors"),
)


@pytest.fixture
def well():
    """The address of a real server."""
    address: list[str] = []
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with app.running_server(Settings(listen="127.0.0.1:0", memory=True)) as server:
            address.append(server.address)
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    yield address[0]
    stop.set()
    thread.join(20)


def by_check(document: list[dict[str, str]]) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in document}


def test_a_server_that_is_well_passes_every_check(run, well) -> None:
    """Twice: a second visit finds what the first one left, which is one small value."""
    for _ in range(2):
        ended = run("doctor", "--json", address=well)
        found = by_check(ended.json)
        assert tuple(found) == CHECKS
        assert {name for name, each in found.items() if each["verdict"] != "ok"} == {"executors"}
        assert found["executors"]["text"] == "none is connected"
        assert ended.code == 0


def test_its_lines_say_how_each_check_went(run, well) -> None:
    out = run("doctor", address=well).out
    assert "ok    reachable   " in out
    assert "warn  executors   none is connected\n      → Tasks wait until one connects" in out
    assert run("doctor", "-o", "jsonl", address=well).out.count("\n") == len(CHECKS)


def test_nobody_there_ends_with_4(run) -> None:
    ended = run("doctor", "--json", address="127.0.0.1:1")
    found = by_check(ended.json)
    assert ended.code == 4
    assert list(found) == ["name", "reachable"]
    assert "Connection refused" in found["reachable"]["text"]
    assert "stepgraph serve" in found["reachable"]["hint"]


def test_a_name_that_nobody_knows_ends_with_4(run, monkeypatch) -> None:
    async def unknown(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", unknown)
    ended = run("doctor", "--json", address="nowhere.invalid:1")
    assert ended.code == 4
    assert by_check(ended.json)["name"]["text"].endswith("Name or service not known")


@pytest.mark.parametrize(
    ("server", "text"),
    [("unix:/x", "is looked up by gRPC itself"), ("127.0.0.1:1", "127.0.0.1 is an address")],
)
async def test_what_needs_no_looking_up_is_not(server, text) -> None:
    assert text in (await doctor._name(server, 1)).text


def test_a_server_of_another_kind_fails_what_it_does_not_have(run, server) -> None:
    """The fake has no health, no reflection and no sessions; it answers the rest."""
    ended = run("doctor", "--json")
    found = by_check(ended.json)
    assert ended.code == 3
    assert {name: each["verdict"] for name, each in found.items()} == {
        "name": "ok",
        "reachable": "ok",
        "alive": "fail",
        "ready": "fail",
        "reflection": "warn",
        "session": "fail",
        "sizes": "ok",
        "journal": "ok",
        "executors": "warn",
    }
    assert "HTTP/2" in found["session"]["hint"]


class _NotReady(health_pb2_grpc.HealthServicer):
    async def Check(self, request, context):  # noqa: N802
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


async def test_a_server_that_is_not_ready_says_so() -> None:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(_NotReady(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        finding = await doctor._health(channel, "readiness", "ready", 5)
    await server.stop(0)
    assert finding.verdict is Verdict.FAIL
    assert "can't write its journal" in finding.hint


def test_a_refusal_is_a_check_that_fails(run, server) -> None:
    server.refuse("WriteValue", *[LOST] * 9)
    found = by_check(run("doctor", "--json").json)
    assert found["journal"]["verdict"] == "fail"
    assert "can't reach" in found["journal"]["text"]


def test_an_answer_that_does_not_come_is_not_waited_for(run, server, monkeypatch) -> None:
    async def never(_client) -> doctor.Finding:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(doctor, "_journal", never)
    found = by_check(run("doctor", "--json", "--timeout", "300ms").json)
    assert found["journal"]["text"] == "no answer within 0.3 s"


async def test_what_comes_back_changed_is_told(client, monkeypatch) -> None:
    async def other(*_):
        return None, b"?"

    monkeypatch.setattr(transfers, "read", other)
    finding = await doctor._journal(client)
    assert (finding.verdict, finding.check) == (Verdict.FAIL, "journal")


@pytest.mark.parametrize(
    ("executors", "verdict", "text"),
    [
        ([], "warn", "none is connected"),
        ([(True, 1, 4)], "ok", "1 connected, 1 of 4 slots taken"),
        ([(True, 4, 4)], "warn", "4 of 4 slots taken"),
        ([(True, 1, 4), (False, 0, 4)], "warn", "1 of 4 slots taken, 1 lost"),
    ],
)
async def test_executors_are_counted(client, server, executors, verdict, text) -> None:
    server.executors = [
        pb.Executor(executor_id=f"e{n}", connected=connected, in_flight=busy, max_in_flight=room)
        for n, (connected, busy, room) in enumerate(executors)
    ] + [pb.Executor(executor_id="doctor-1", connected=True)]
    finding = await doctor._executors(client)
    assert finding.verdict == verdict
    assert text in finding.text


@pytest.mark.parametrize(
    ("theirs", "ours", "protocol", "verdict"),
    [
        ("stepgraph/0.1.3", "0.1.0", 1, Verdict.OK),
        ("0.2.0", "0.1.0", 1, Verdict.WARN),
        ("1.4.0", "1.2.0", 1, Verdict.OK),
        ("2.0.0", "1.2.0", 1, Verdict.WARN),
        ("", "1.2.0", 1, Verdict.WARN),
        ("0.1.0", "0.1.0", 2, Verdict.FAIL),
    ],
)
def test_versions_are_compared(monkeypatch, theirs, ours, protocol, verdict) -> None:
    """Within 0.x the second number may break something, later the first one only."""
    monkeypatch.setattr(doctor.metadata, "version", lambda _name: ours)
    welcome = pb.Welcome(server_version=theirs, protocol_version=protocol)
    assert version_finding(welcome).verdict is verdict


def test_a_source_tree_that_is_not_installed_has_no_version(monkeypatch) -> None:
    def missing(name: str) -> str:
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    finding = version_finding(pb.Welcome(server_version="0.1.0", protocol_version=1))
    assert "here unknown" in finding.text


@pytest.mark.parametrize(
    ("server_s", "verdict", "text"),
    [
        (100.5, Verdict.OK, "0.000 s behind (±0.500 s)"),
        (103.0, Verdict.OK, "2.500 s ahead (±0.500 s)"),
        (103.1, Verdict.WARN, "2.600 s ahead"),
        (90.0, Verdict.WARN, "10.500 s behind"),
    ],
)
def test_what_the_way_may_explain_is_not_held_against_a_clock(server_s, verdict, text) -> None:
    finding = clock_finding(server_s, 100.0, 101.0)
    assert finding.verdict is verdict
    assert text in finding.text


def test_a_server_that_says_nothing_is_not_waited_for(run) -> None:
    """It takes the connection, and that is all."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = run("doctor", "--json", "--timeout", "300ms", address=address)
    assert ended.code == 4
    assert by_check(ended.json)["reachable"]["verdict"] == "fail"


async def test_a_session_without_a_welcome_is_told() -> None:
    """A proxy may let calls through and streams not."""

    class Silent(executors_grpc.ExecutorServiceServicer):
        async def Connect(self, request_iterator, context):  # noqa: N802
            await asyncio.Event().wait()
            yield pb.ConnectResponse()

    server = grpc.aio.server()
    executors_grpc.add_ExecutorServiceServicer_to_server(Silent(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    settings = CommandSettings(server=f"127.0.0.1:{port}")
    async with grpc.aio.insecure_channel(settings.server) as channel:
        (finding,) = await doctor._session(channel, settings, 0.2)
    await server.stop(0)
    assert finding.verdict is Verdict.FAIL
    assert finding.text == "no welcome within 0.2 s"


class _Welcoming(executors_grpc.ExecutorServiceServicer):
    """Welcomes whoever comes, and does not list them."""

    async def Connect(self, request_iterator, context):  # noqa: N802
        welcome = pb.Welcome(protocol_version=1, server_version="stepgraph/0.1.0")
        yield pb.ConnectResponse(welcome=welcome)
        async for _ in request_iterator:
            yield pb.ConnectResponse()

    async def ListExecutors(self, request, context):  # noqa: N802
        return pb.ListExecutorsResponse(executors=[pb.Executor(executor_id="other")])


async def test_a_clock_that_is_not_told_is_left_out() -> None:
    server = grpc.aio.server()
    executors_grpc.add_ExecutorServiceServicer_to_server(_Welcoming(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    settings = CommandSettings(server=f"127.0.0.1:{port}")
    async with grpc.aio.insecure_channel(settings.server) as channel:
        findings = await doctor._session(channel, settings, 5)
    await server.stop(0)
    assert [each.check for each in findings] == ["session", "version", "limits"]
