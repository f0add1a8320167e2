from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2, graph_pb2, llm_pb2
from stepgraph_server.core import wire


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 16_383, 16_384, 2**31, 2**64 - 1])
def test_a_varint_is_read_back_as_it_was_written(number: int) -> None:
    assert list(wire.fields(wire.varint_field(1, number))) == [wire.Field(1, wire.VARINT, number)]


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 70_000])
def test_a_length_delimited_field_is_what_protobuf_writes(size: int) -> None:
    text = "x" * size
    message = llm_pb2.ToolDefinition(output_schema=text)
    written = message.SerializeToString() if size else b""
    assert (wire.length_delimited(4, text.encode()) if size else b"") == written
    assert wire.length_prefix(4, size) + text.encode() == wire.length_delimited(4, text.encode())


def test_a_field_number_above_15_takes_a_longer_tag() -> None:
    assert wire.tag(15) == b"\x7a"
    assert wire.tag(16) == b"\x82\x01"
    assert list(wire.fields(wire.length_delimited(16, b"x"))) == [wire.Field(16, 2, b"x")]


def test_joined_messages_are_a_repeated_field() -> None:
    messages = [conversation_pb2.Message(role=role) for role in (1, 2, 3)]
    joined = wire.join_repeated(3, [message.SerializeToString() for message in messages])
    assert llm_pb2.LlmRequest.FromString(joined).messages == messages
    assert wire.join_repeated(3, []) == b""


def test_all_wire_types_are_read() -> None:
    """A double is eight bytes as they stand; a fixed32 four."""
    data = graph_pb2.NodeAction.LlmInfer(temperature=0.5, max_tokens=7).SerializeToString()
    assert [(field.number, field.wire_type) for field in wire.fields(data)] == [(6, 1), (7, 0)]
    assert list(wire.fields(b"\x0d\x01\x02\x03\x04")) == [wire.Field(1, 5, b"\x01\x02\x03\x04")]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x80", "cut off"),
        (b"\x0a\x05abc", "field 1 is cut off"),
        (b"\x09\x01", "field 1 is cut off"),
        (b"\x0b", "wire type 3"),
        (b"\x02\x00", "number 0"),
        (b"\xff" * 11, "longer than 10"),
    ],
)
def test_broken_bytes_are_refused_with_the_place(data: bytes, complaint: str) -> None:
    with pytest.raises(wire.WireError, match=complaint) as caught:
        list(wire.fields(data))
    assert caught.value.offset <= len(data)
