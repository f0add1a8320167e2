"""Probes get answers that mean something, and reflection describes what there is."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from stepgraph_server.api import server
from stepgraph_server.storage.errors import JournalUnavailable

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def check(channel, service):
    return (await HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service))).status


@pytest.mark.parametrize("service", ["liveness", "readiness", ""])
async def test_a_server_that_runs_is_alive_and_ready(channel, service):
    assert await check(channel, service) == SERVING


async def test_an_unknown_name_is_not_found(channel):
    with pytest.raises(grpc.RpcError) as caught:
        await check(channel, "secrets")

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    call = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="secrets"))
    assert (await call.read()).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    call.cancel()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(server, "READINESS_PERIOD_S", 0.02)
    monkeypatch.setattr(server, "READINESS_PATIENCE_S", 0.05)


async def _refuse():
    raise JournalUnavailable("/data", "the disk is full", "Free space")


async def _hang():
    await asyncio.sleep(60)


@pytest.mark.parametrize("trouble", [_refuse, _hang])
async def test_while_nothing_can_be_written_the_server_is_alive_and_not_ready(
    impatient, served, channel, trouble
):
    check_writable = served.store.check_writable
    watch = HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="readiness"))
    assert (await watch.read()).status == SERVING

    served.store.check_writable = trouble
    assert (await watch.read()).status == NOT_SERVING
    assert await check(channel, "liveness") == SERVING

    served.store.check_writable = check_writable
    assert (await watch.read()).status == SERVING
    watch.cancel()


async def test_reflection_lists_all_services(channel):
    request = reflection_pb2.ServerReflectionRequest(list_services="")

    call = ServerReflectionStub(channel).ServerReflectionInfo(iter([request]))

    names = {service.name for service in (await call.read()).list_services_response.service}
    assert names == {
        "stepgraph.v1.GraphService",
        "stepgraph.v1.RunService",
        "stepgraph.v1.InterruptService",
        "stepgraph.v1.ExecutorService",
        "stepgraph.v1.ValueService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
