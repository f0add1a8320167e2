"""The port of stored values, and the check of what comes in pieces."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import value_pb2
from stepgraph_server.storage import values as values_module
from stepgraph_server.storage.errors import ValueMismatch, ValueTooLarge
from stepgraph_server.storage.memory import MemoryValues
from stepgraph_server.storage.sqlite.values import SqliteValues
from stepgraph_server.storage.values import ContentBuffer, Values
from tests.unit.stepgraph_server.storage.shapes import differences


def header(content: bytes, digest: str | None = None) -> value_pb2.StoredValue:
    right = f"sha256:{hashlib.sha256(content).hexdigest()}"
    return value_pb2.StoredValue(
        digest=right if digest is None else digest,
        size_bytes=len(content),
        form=value_pb2.VALUE_FORM_TEXT,
    )


@pytest.mark.parametrize("backend", [MemoryValues, SqliteValues])
def test_every_backend_has_the_methods_of_the_port(backend: type) -> None:
    """With the same parameters, in the same order."""
    assert differences(Values, backend) == []


@given(pieces=st.lists(st.binary(max_size=40), max_size=8), chunk=st.integers(1, 30))
def test_chunks_have_one_size_whatever_the_pieces(pieces: list[bytes], chunk: int) -> None:
    """Put together they are the content, and only the last may be shorter."""
    content = b"".join(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(values_module, "VALUE_CHUNK_BYTES", chunk)
        buffer = ContentBuffer(header(content), 1_000)
        chunks = [one for piece in pieces for one in buffer.add(piece)]
        assert {len(one) for one in chunks} <= {chunk}
        assert len(buffer.rest()) < chunk
        assert b"".join(chunks) + buffer.rest() == content
        assert buffer.finish() == header(content)


def test_a_missing_digest_is_filled_in() -> None:
    """The rest of the header is taken as it is."""
    buffer = ContentBuffer(header(b"abc", digest=""), 10)
    assert list(buffer.add(b"abc")) == []
    assert buffer.finish() == header(b"abc")


def test_another_content_is_refused_at_its_end() -> None:
    """It says what was expected and what came."""
    buffer = ContentBuffer(header(b"abc"), 10)
    list(buffer.add(b"abd"))
    with pytest.raises(ValueMismatch, match=r"the digest of the content is sha256:\w+, and"):
        buffer.finish()


def test_a_content_that_is_too_short_is_refused() -> None:
    """By its size, before its digest."""
    buffer = ContentBuffer(header(b"abc"), 10)
    list(buffer.add(b"ab"))
    with pytest.raises(ValueMismatch, match="the size of the content is 2, and its header says 3"):
        buffer.finish()


def test_a_content_that_is_too_long_is_refused_at_once() -> None:
    """Without waiting for its end."""
    buffer = ContentBuffer(header(b"abc"), 10)
    with pytest.raises(ValueMismatch):
        list(buffer.add(b"abcd"))
    with pytest.raises(ValueTooLarge) as caught:
        list(ContentBuffer(header(bytes(20)), 10).add(bytes(11)))
    assert (caught.value.limit_bytes, caught.value.size_bytes) == (10, 20)
