"""Large contents are written whole or not at all, and read from any place."""

from __future__ import annotations

import pytest

from stepgraph.v1 import value_service_pb2 as pb
from stepgraph_server.api.value_service import ValueService
from stepgraph_server.config import LimitSettings, PageSettings
from stepgraph_server.engine.clock import SystemClock
from stepgraph_server.storage.errors import ValueMismatch, ValueTooLarge


@pytest.fixture
def service(store, checker):
    return ValueService(
        values=store.values,
        checker=checker,
        clock=SystemClock(),
        limits=LimitSettings(max_stored_value_bytes=1_000),
        pages=PageSettings(max_chunk_bytes=300),
    )


async def parts(*found):
    for part in found:
        yield part


def header(size, **fields):
    return pb.WriteValueRequest(header={"value": {"size_bytes": size, "form": 1, **fields}})


def chunk(data):
    return pb.WriteValueRequest(chunk=data)


async def written(service, context, content=b"hello"):
    response = await service.WriteValue(parts(header(len(content)), chunk(content)), context)
    return response.value


async def read(service, context, digest, offset=0):
    request = pb.ReadValueRequest(digest=digest, offset_bytes=offset)
    return [response async for response in service.ReadValue(request, context)]


async def test_what_was_written_is_read_in_chunks(service, context):
    pieces = [bytes([n]) * 300 for n in range(3)]
    value = (await service.WriteValue(parts(header(900), *map(chunk, pieces)), context)).value

    responses = await read(service, context, value.digest)

    assert [response.chunk for response in responses] == pieces
    assert [response.HasField("value") for response in responses] == [True, False, False]
    assert responses[0].value == value


@pytest.mark.parametrize(("offset", "rest"), [(0, b"hello"), (3, b"lo"), (5, b"")])
async def test_reading_starts_anywhere(service, context, offset, rest):
    value = await written(service, context)

    [response] = await read(service, context, value.digest, offset)

    assert response.chunk == rest
    assert response.value.size_bytes == 5


async def test_an_empty_content_is_a_content(service, context):
    value = await written(service, context, b"")

    [response] = await read(service, context, value.digest)

    assert response.value == value


async def test_reading_what_is_not_there_is_refused(service, context, reason_of):
    value = await written(service, context)

    assert await reason_of(read(service, context, "sha256:" + "0" * 64)) == "VALUE_NOT_FOUND"
    assert await reason_of(read(service, context, value.digest, 6)) == "INVALID_REQUEST"


async def test_a_content_that_goes_while_it_is_read_is_not_found(
    service, context, store, monkeypatch, reason_of
):
    value = await written(service, context)

    async def gone(*_):
        return None

    monkeypatch.setattr(store.values, "read", gone)

    assert await reason_of(read(service, context, value.digest)) == "VALUE_NOT_FOUND"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([], "INVALID_REQUEST"),
        ([chunk(b"x")], "INVALID_REQUEST"),
        ([header(1, form=0)], "INVALID_REQUEST"),
        ([header(1), header(1)], "INVALID_REQUEST"),
        ([header(1), pb.WriteValueRequest()], "UNKNOWN_VARIANT"),
        ([header(400), chunk(b"x" * 400)], "PAYLOAD_TOO_LARGE"),
    ],
    ids=["nothing", "no header", "bad header", "two headers", "unknown part", "large chunk"],
)
async def test_parts_that_make_no_value_are_refused(service, context, reason_of, found, reason):
    assert await reason_of(service.WriteValue(parts(*found), context)) == reason


async def test_a_content_that_is_not_what_its_header_says_is_not_stored(service, context):
    with pytest.raises(ValueMismatch):
        await service.WriteValue(parts(header(5), chunk(b"four")), context)
    with pytest.raises(ValueTooLarge):
        await service.WriteValue(parts(header(2_000), *[chunk(b"x" * 300)] * 4), context)
