"""The server listens where it may, answers, and stops in order. What travels over the wire is in tests/api."""

from __future__ import annotations

import asyncio
import socket

import grpc.aio
import pytest

from stepgraph.v1 import executor_service_pb2, run_service_pb2
from stepgraph.v1.executor_service_pb2_grpc import ExecutorServiceStub
from stepgraph.v1.run_service_pb2_grpc import RunServiceStub
from stepgraph_server.api import server
from stepgraph_server.api.listening import AddressInUse, AddressRefused
from stepgraph_server.api.server import channel_options, request_limits
from stepgraph_server.config import Settings, ShutdownSettings, load
from stepgraph_server.core.instants import MILLISECOND, Span
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.records import RunKey
from tests.support.failures import failure_of
from tests.support.standins import serving

GRACE = Span(50 * MILLISECOND)
SETTINGS = Settings(
    listen="127.0.0.1:0",
    memory=True,
    shutdown=ShutdownSettings(drain_grace=GRACE, stop_grace=GRACE),
)


def test_the_transport_takes_what_our_own_limits_are_to_refuse():
    options = dict(channel_options(SETTINGS))

    assert options["grpc.max_receive_message_length"] == 8 * 1024 * 1024
    assert options["grpc.so_reuseport"] == 0
    assert options["grpc.http2.max_ping_strikes"] == 0


def test_the_transport_lets_all_wait_that_our_own_limit_is_to_refuse():
    for most in ("1", "10000", "1000000"):
        settings = load({"limits.max_pending_changes": most}, {}).settings

        options = dict(channel_options(settings))

        assert options["grpc.server.max_pending_requests"] >= max(20_000, 2 * int(most))
        assert (
            options["grpc.server.max_pending_requests_hard_limit"]
            >= 2 * options["grpc.server.max_pending_requests"]
        )


def test_requests_are_held_against_the_settings():
    settings = load(
        {"limits.max_labels": "3", "limits.max_inline_value_bytes": "1KiB"}, {}
    ).settings

    limits = request_limits(settings)

    assert limits.max_labels == 3
    assert limits.values.max_inline_bytes == 1_024


async def test_it_answers_and_ends_streams_when_it_is_left():
    async with serving(SETTINGS) as served:
        await served.engine.create(RunKey("default", "r1"))
        async with grpc.aio.insecure_channel(served.server.address) as channel:
            watch = RunServiceStub(channel).WatchRun(run_service_pb2.WatchRunRequest(run_id="r1"))
            session = ExecutorServiceStub(channel).Connect()
            await session.write(executor_service_pb2.ConnectRequest(hello={"executor_id": "e"}))
            await watch.read()
            await session.read()
            await served.server.stop()
            assert (await failure_of(watch)).reason == "SHUTTING_DOWN"
            assert (await failure_of(session)).reason == "SHUTTING_DOWN"
        assert not served.server.health.is_ready


async def test_it_refuses_to_listen_where_others_could_reach_it():
    with pytest.raises(AddressRefused, match="--insecure"):
        async with serving(Settings(listen="0.0.0.0:0", memory=True)):
            pass


async def test_it_refuses_a_port_in_use():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        settings = Settings(listen=f"127.0.0.1:{listener.getsockname()[1]}", memory=True)

        with pytest.raises(AddressInUse):
            async with serving(settings):
                pass


async def test_a_port_that_somebody_takes_in_between_is_refused_too(monkeypatch):
    def taken(self, address):
        message = "Failed to bind"
        raise RuntimeError(message)

    monkeypatch.setattr("grpc.aio._server.Server.add_insecure_port", taken)

    with pytest.raises(AddressInUse, match="Failed to bind"):
        async with serving(SETTINGS):
            pass


async def test_readiness_follows_whether_anything_can_be_written(monkeypatch):
    monkeypatch.setattr(server, "READINESS_PERIOD_S", 0.001)
    can_write = True

    async def check_writable():
        if not can_write:
            raise JournalUnavailable("/data", "the disk is full", "Free space")

    async def until(is_ready):
        async with asyncio.timeout(5):
            while served.server.health.is_ready is not is_ready:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async with serving(SETTINGS) as served:
        served.store.check_writable = check_writable
        can_write = False
        await until(is_ready=False)
        can_write = True
        await until(is_ready=True)
