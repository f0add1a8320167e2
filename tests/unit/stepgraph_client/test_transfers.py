from __future__ import annotations

import hashlib

import pytest

from stepgraph.v1.value_pb2 import (
    VALUE_FORM_BLOB,
    VALUE_FORM_JSON,
    Blob,
    Secret,
    StoredValue,
    Value,
)
from stepgraph_client import transfers
from stepgraph_client.errors import NotFound, StepgraphError
from tests.support.fake_server import LOST, Refusal

LARGE = "x" * (transfers.CHUNK_BYTES * 2 + 5)


@pytest.mark.parametrize(
    "value",
    [
        Value(text="hä"),
        Value(json='{"n": 9007199254740993}'),
        Value(blob=Blob(media_type="image/png", data=b"\x00\xff")),
        Value(text=LARGE),
    ],
    ids=["text", "json", "blob", "large"],
)
async def test_what_is_stored_comes_back_as_it_was(client, value) -> None:
    reference = await client.put_value(value)
    content = transfers.content_of(value)
    assert content is not None
    assert reference.stored.digest == f"sha256:{hashlib.sha256(content[0]).hexdigest()}"
    assert await client.read_value(reference.stored.digest) == content[0]
    assert transfers.inline(reference.stored, content[0]) == value


async def test_large_values_travel_in_pieces(client, server) -> None:
    reference = await client.put_value(LARGE)
    assert server.values[reference.stored.digest][1] == LARGE.encode()


async def test_a_write_that_was_lost_is_made_again(client, server) -> None:
    server.refuse("WriteValue", Refusal(code=LOST.code, late=True))
    assert (await client.put_value("x")).stored.size_bytes == 1
    assert len(server.requests["WriteValue"]) == 2


async def test_a_read_that_was_cut_off_goes_on_where_it_was(client, server) -> None:
    reference = await client.put_value(LARGE)
    server.refuse("ReadValue", Refusal(code=LOST.code, late=True))
    assert await client.read_value(reference.stored.digest) == LARGE.encode()
    assert [each.offset_bytes for each in server.requests["ReadValue"]] == [0, len(LARGE) // 2]


async def test_content_that_is_not_that_of_its_digest_is_refused(client, server) -> None:
    reference = await client.put_value("x")
    server.values[reference.stored.digest] = (reference.stored, b"y")
    with pytest.raises(transfers.ValueDamaged) as caught:
        await client.read_value(reference.stored.digest)
    assert caught.value.digest == reference.stored.digest


async def test_a_value_that_is_not_there_is_not_found(client) -> None:
    with pytest.raises(NotFound, match="VALUE_NOT_FOUND"):
        await client.read_value("sha256:00")


async def test_what_has_no_content_of_its_own_is_not_stored(client, server) -> None:
    secret = Value(secret=Secret(name="key"))
    assert await client.put_value(secret) == secret
    assert not server.requests["WriteValue"]


def test_forms_say_what_a_content_stands_for() -> None:
    json = transfers.inline(StoredValue(form=VALUE_FORM_JSON), b"[]")
    blob = transfers.inline(StoredValue(form=VALUE_FORM_BLOB, media_type="a/b"), b"x")
    assert (json.json, blob.blob.media_type) == ("[]", "a/b")
    with pytest.raises(StepgraphError, match="does not know"):
        transfers.inline(StoredValue(digest="sha256:0", form=99), b"")
