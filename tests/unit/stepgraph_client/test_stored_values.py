"""Large values: read once, written once, and referred to."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import value_pb2
from stepgraph_client import stored_values
from stepgraph_client.calls import Caller, Patience
from stepgraph_client.connection import Connection
from stepgraph_client.errors import NotFound, TooMuch
from stepgraph_client.stored_values import StoredValues
from stepgraph_server.executors.session_events import Terms
from tests.support.executor_server import ExecutorServer

TEXT = value_pb2.VALUE_FORM_TEXT


@pytest.fixture
async def desk():
    async with ExecutorServer(Terms(max_stored_value_bytes=10_000)) as server:
        yield server


@pytest.fixture
async def values(desk):
    connection = Connection(desk.address)
    yield StoredValues(Caller(desk.address, Patience()), connection.stubs.values, "default")
    await connection.close()


def outcome(**message):
    response = {"message": message}
    return pb.AttemptOutcome(task_id="r/t", attempt=1, succeeded={"llm": response})


def block(text):
    return {"text": {"text": text}}


async def test_a_content_is_read_once(desk, values):
    stored = desk.store(b"content", TEXT)
    for _ in range(3):
        assert await values.content(stored) == b"content"
    assert desk.reads == [stored.digest]


async def test_a_value_comes_back_with_its_content(desk, values):
    for form, expected in (
        (TEXT, value_pb2.Value(text="[1]")),
        (value_pb2.VALUE_FORM_JSON, value_pb2.Value(json="[1]")),
        (value_pb2.VALUE_FORM_BLOB, value_pb2.Value(blob={"data": b"[1]"})),
    ):
        assert await values.resolve(value_pb2.Value(stored=desk.store(b"[1]", form))) == expected
    inline = value_pb2.Value(text="inline")
    assert await values.resolve(inline) is inline


async def test_what_is_not_there_is_not_found(values):
    with pytest.raises(NotFound):
        await values.content(value_pb2.StoredValue(digest="sha256:" + "0" * 64))


async def test_what_is_kept_is_bounded_and_the_oldest_goes_first(desk, values, monkeypatch):
    monkeypatch.setattr(stored_values, "MAX_KEPT_BYTES", 100)
    first, second, third = (desk.store(bytes([index]) * 40, TEXT) for index in range(3))
    await values.content(first)
    await values.content(second)
    await values.content(first)
    await values.content(third)
    await values.content(first)
    assert desk.reads == [first.digest, second.digest, third.digest]
    await values.content(second)
    assert desk.reads[3:] == [second.digest]


async def test_what_is_too_large_to_be_kept_is_read_again(desk, values, monkeypatch):
    monkeypatch.setattr(stored_values, "MAX_KEPT_BYTES", 100)
    stored = desk.store(b"x" * 60, TEXT)
    await values.content(stored)
    await values.content(stored)
    assert len(desk.reads) == 2


async def test_large_parts_of_a_result_are_stored_and_referred_to(desk, values):
    blob = {"blob": {"media_type": "image/png", "data": b"p" * 150}}
    message = outcome(
        content=[
            block("short"),
            block("x" * 101),
            {"image": blob},
            {"file": {**blob, "name": "f"}},
            {"tool_result": {"content": [block("y" * 101)]}},
        ]
    )
    await values.externalize(message, 100)
    short, long, image, file, nested = message.succeeded.llm.message.content
    assert short.text.text == "short"
    assert long.text.stored.form == TEXT
    assert long.text.stored.size_bytes == 101
    assert image.image.stored.media_type == "image/png"
    assert image.image.stored == file.file.stored
    assert file.file.name == "f"
    assert nested.tool_result.content[0].text.HasField("stored")
    assert desk.stored[long.text.stored.digest][1] == b"x" * 101
    assert len(desk.writes) == 3, "the picture was written once"


async def test_values_of_every_form_are_stored(desk, values):
    for value, form in (
        (value_pb2.Value(text="x" * 101), TEXT),
        (value_pb2.Value(json='"' + "x" * 101 + '"'), value_pb2.VALUE_FORM_JSON),
        (value_pb2.Value(blob={"data": b"x" * 101}), value_pb2.VALUE_FORM_BLOB),
    ):
        message = pb.AttemptOutcome(succeeded={"effect": {"output": value}})
        await values.externalize(message, 100)
        assert message.succeeded.effect.output.stored.form == form


async def test_values_in_maps_are_stored_and_other_maps_left_alone(desk, values):
    large = value_pb2.Value(text="x" * 101)
    reply = {"update": {"variables": {"v": large}}}
    message = pb.AttemptOutcome(succeeded={"step": reply})
    await values.externalize(message, 100)
    assert message.succeeded.step.update.variables["v"].HasField("stored")
    other = outcome(metadata={"k": "x" * 101})
    before = other.SerializeToString(deterministic=True)
    await values.externalize(other, 100)
    assert other.SerializeToString(deterministic=True) == before


async def test_what_is_stored_already_or_small_is_left_alone(desk, values):
    stored = desk.store(b"x", TEXT)
    message = outcome(content=[{"text": {"stored": stored}}, block("y" * 90), block("z" * 90)])
    await values.externalize(message, 100)
    assert desk.writes == []


async def test_the_same_content_is_written_once_and_read_never(desk, values):
    for _ in range(2):
        message = outcome(content=[block("x" * 101)])
        await values.externalize(message, 100)
    assert len(desk.writes) == 1
    stored = message.succeeded.llm.message.content[0].text.stored
    assert await values.content(stored) == b"x" * 101
    assert desk.reads == []


async def test_known_digests_are_bounded(desk, values, monkeypatch):
    monkeypatch.setattr(stored_values, "MAX_KNOWN_DIGESTS", 1)
    for letter in "aba":
        await values.externalize(outcome(content=[block(letter * 101)]), 100)
    assert len(desk.writes) == 3


async def test_what_the_server_does_not_store_is_too_much(desk, values):
    with pytest.raises(TooMuch):
        await values.externalize(outcome(content=[block("x" * 10_001)]), 100)
    await asyncio.sleep(0)
