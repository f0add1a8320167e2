from __future__ import annotations

import pytest

from stepgraph.v1.value_pb2 import Value
from stepgraph_client.transfers import MAX_INLINE_BYTES


async def test_lists_turn_their_own_pages(client, server) -> None:
    for n in range(5):
        server.add_run(f"r{n}")
    assert [run.run_id async for run in client.list_runs()] == ["r0", "r1", "r2", "r3", "r4"]
    assert [each.page_token for each in server.requests["ListRuns"]] == ["", "2", "4"]


@pytest.mark.parametrize("given", ["text", {"a": [1, 2]}, 9007199254740993, b"\x00", None, True])
async def test_python_values_come_back_as_they_were(client, given) -> None:
    assert await client.get_value(await client.as_value(given)) == given


async def test_a_value_that_is_too_large_for_a_message_is_stored_first(client) -> None:
    small = await client.as_value("x" * MAX_INLINE_BYTES)
    large = await client.as_value("x" * (MAX_INLINE_BYTES + 1))
    assert (small.WhichOneof("kind"), large.WhichOneof("kind")) == ("text", "stored")
    assert await client.get_value(large) == "x" * (MAX_INLINE_BYTES + 1)


async def test_a_reference_stays_a_reference(client) -> None:
    reference = await client.put_value("x")
    assert await client.as_value(reference) == reference


async def test_nothing_is_nothing(client) -> None:
    assert await client.get_value(Value()) is None
