"""Nothing is recorded that refers to a value which is not there."""

from __future__ import annotations

import pytest

from stepgraph.v1 import run_service_pb2, value_pb2
from stepgraph_server.api.references import refuse_missing_values
from stepgraph_server.core.errors import Refused


async def put(store, namespace="default"):
    async def chunks():
        yield b"hello"

    return await store.values.put(
        namespace, value_pb2.StoredValue(size_bytes=5, form=1), chunks(), create_time=1
    )


def request(*stored):
    found = run_service_pb2.StartRunRequest()
    for value in stored:
        found.input.messages.add(role=2).content.add().text.stored.CopyFrom(value)
    if stored:
        found.input.variables["x"].stored.CopyFrom(stored[0])
    return found


async def test_values_that_are_there_pass(store, engine):
    await refuse_missing_values(request(await put(store)), "default", store.values)
    await refuse_missing_values(request(), "default", store.values)


async def test_a_value_that_is_not_in_the_namespace_is_missing(store, engine):
    value = await put(store, "other")

    with pytest.raises(Refused) as caught:
        await refuse_missing_values(request(value), "default", store.values)

    assert caught.value.reason == "VALUE_NOT_FOUND"
    assert caught.value.metadata == {"digest": value.digest}


async def test_what_stands_inside_a_graph_is_not_looked_at(store, engine):
    found = run_service_pb2.StartRunRequest()
    node = found.graph.definition.nodes.add()
    node.interrupt_options.default_answer.reply.value.stored.digest = "sha256:1"

    await refuse_missing_values(found, "default", store.values)
