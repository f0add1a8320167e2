"""Generators of instrumentation that are dropped are closed where they ran."""

from __future__ import annotations

import asyncio
import gc
import sys
from contextvars import ContextVar

import grpc.aio
import pytest

from stepgraph_server.api.left_streams import close_left_streams, is_instrumented

CURRENT: ContextVar[str] = ContextVar("CURRENT", default="")


def generator_of(module, ended):
    """Return a generator function that looks as if a module had it: it sets a context, and takes it back."""
    scope = {"CURRENT": CURRENT, "ended": ended, "__name__": module}
    text = """
async def generate():
    token = CURRENT.set("inside")
    try:
        yield 1
        yield 2
    finally:
        try:
            CURRENT.reset(token)
            ended.append("here")
        except ValueError:
            ended.append("elsewhere")
"""
    exec(text, scope)
    return scope["generate"]


@pytest.fixture
def hooks():
    before = sys.get_asyncgen_hooks()
    yield
    sys.set_asyncgen_hooks(*before)


async def leave_half_way(generate):
    async for _ in generate():
        break
    gc.collect()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("module", "where"),
    [("opentelemetry.instrumentation.grpc._aio_server", "here"), ("of_somebody_else", "elsewhere")],
)
async def test_only_generators_of_the_instrumentation_are_closed_at_once(hooks, module, where):
    ended = []
    close_left_streams()
    await leave_half_way(generator_of(module, ended))
    assert ended == [where]


def test_a_server_is_instrumented_if_whoever_makes_it_is(monkeypatch):
    assert not is_instrumented()

    def server():
        pass

    server.__module__ = "opentelemetry.instrumentation.grpc"
    monkeypatch.setattr(grpc.aio, "server", server)
    assert is_instrumented()
