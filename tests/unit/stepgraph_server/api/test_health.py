"""Liveness is whether anything is answered, readiness whether calls are wanted."""

from __future__ import annotations

import asyncio

import pytest
from grpc_health.v1 import health_pb2

from stepgraph_server.api.health import Health

STATUS = health_pb2.HealthCheckResponse


async def check(health, name):
    response = await health.Check(health_pb2.HealthCheckRequest(service=name), None)
    return response.status


@pytest.mark.parametrize("is_ready", [True, False])
async def test_liveness_does_not_depend_on_readiness(is_ready):
    health = Health()
    health.set_ready(is_ready=is_ready)

    expected = STATUS.SERVING if is_ready else STATUS.NOT_SERVING
    assert health.is_ready is is_ready
    assert await check(health, "liveness") == STATUS.SERVING
    assert await check(health, "readiness") == expected
    assert await check(health, "") == expected


async def test_a_watch_shows_each_change_once():
    health, seen = Health(), []

    async def watch(name):
        request = health_pb2.HealthCheckRequest(service=name)
        async for response in health.Watch(request, None):
            seen.append((name, response.status))  # noqa: PERF401  # it never ends

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(watch(name)) for name in ("readiness", "liveness", "x")]
        await asyncio.sleep(0)
        for is_ready in (True, True, False):
            health.set_ready(is_ready=is_ready)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()

    assert seen == [
        ("readiness", STATUS.NOT_SERVING),
        ("liveness", STATUS.SERVING),
        ("x", STATUS.SERVICE_UNKNOWN),
        ("readiness", STATUS.SERVING),
        ("readiness", STATUS.NOT_SERVING),
    ]
