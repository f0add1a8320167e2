"""Messages that nodes append: what a model can read of each kind of value."""

from __future__ import annotations

import pytest

from stepgraph.v1 import failure_pb2, value_pb2
from stepgraph_server.core.actions.messages import (
    failure_text,
    list_value,
    output_message,
    refused_call,
    tool_message,
    value_blocks,
)
from tests.support.core_pieces import json, text

PICTURE = value_pb2.Value(blob=value_pb2.Blob(media_type="image/png", data=b"x"))
FILE = value_pb2.Value(blob=value_pb2.Blob(media_type="text/csv", data=b"x"))
SECRET = value_pb2.Value(secret=value_pb2.Secret(name="key"))


def stored(form: str, media_type: str = "") -> value_pb2.Value:
    number = value_pb2.ValueForm.Value(f"VALUE_FORM_{form}")
    return value_pb2.Value(
        stored=value_pb2.StoredValue(digest="sha256:0", form=number, media_type=media_type)
    )


@pytest.mark.parametrize(
    ("value", "kind", "body"),
    [
        (text("a"), "text", "text"),
        (json("[1]"), "text", "text"),
        (PICTURE, "image", "blob"),
        (FILE, "file", "blob"),
        (stored("TEXT"), "text", "stored"),
        (stored("BLOB", "image/png"), "image", "stored"),
        (stored("BLOB", "text/csv"), "file", "stored"),
        (SECRET, "text", "text"),
        (value_pb2.Value(), "text", "text"),
    ],
    ids=[
        "text",
        "json",
        "picture",
        "file",
        "stored",
        "stored-pic",
        "stored-file",
        "secret",
        "empty",
    ],
)
def test_every_value_becomes_a_block(value: value_pb2.Value, kind: str, body: str) -> None:
    (block,) = value_blocks(value)
    assert block.WhichOneof("kind") == kind
    assert getattr(block, kind).HasField(body)


def test_a_secret_shows_its_name_only() -> None:
    assert value_blocks(SECRET)[0].text.text == "(secret key)"


def test_an_output_says_which_node_it_is_of() -> None:
    assert output_message(text("x"), "a").metadata == {"node": "a"}


def test_errors_are_results() -> None:
    message = tool_message("c", "p", refused_call("broken").tool)
    result = message.content[0].tool_result
    assert (result.call_id, result.provider_id, result.is_error) == ("c", "p", True)
    assert result.content[0].text.text == "broken"
    assert refused_call("no").tool.is_error
    assert failure_text(failure_pb2.Failure(code="X", message="y")) == "X: y"


def test_a_list_of_values_names_what_has_no_json() -> None:
    values = [text("a"), json('{"n": 9007199254740993}'), PICTURE, stored("TEXT"), SECRET]
    assert list_value(values) == json(
        '["a",{"n":9007199254740993},{"blob":"image/png"},'
        '{"stored":"sha256:0","media_type":""},{"secret":"key"}]'
    )
