"""Messages that nodes append to the conversation.

Rules: a node that performs a call writes the result under that call; any other node's output is one user message with
the node in its metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1 import task_pb2, transition_pb2, value_pb2
from stepgraph_server.core import json_text
from stepgraph_server.core.values import from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.json_text import JsonValue


def text_block(text: str) -> pb.ContentBlock:
    """Return text as a block."""
    return pb.ContentBlock(text=pb.TextBlock(text=text))


def user_message(text: str, node_id: str) -> pb.Message:
    """Return a message of the user's side that a node speaks."""
    return pb.Message(role=pb.ROLE_USER, content=[text_block(text)], metadata={"node": node_id})


def output_message(value: value_pb2.Value, node_id: str) -> pb.Message:
    """Return a node's output as a message."""
    return pb.Message(role=pb.ROLE_USER, content=value_blocks(value), metadata={"node": node_id})


def value_blocks(value: value_pb2.Value) -> list[pb.ContentBlock]:
    """Return a value as blocks that a model can read."""
    match value.WhichOneof("kind"):
        case "text":
            return [text_block(value.text)]
        case "json":
            return [text_block(value.json)]
        case "blob" if value.blob.media_type.startswith("image/"):
            return [pb.ContentBlock(image=pb.ImageBlock(blob=value.blob))]
        case "blob":
            return [pb.ContentBlock(file=pb.FileBlock(blob=value.blob))]
        case "stored":
            return [_stored_block(value.stored)]
        case "secret":
            return [text_block(f"(secret {value.secret.name})")]
        case _:
            return [text_block("")]


def _stored_block(stored: value_pb2.StoredValue) -> pb.ContentBlock:
    if stored.form != value_pb2.VALUE_FORM_BLOB:
        return pb.ContentBlock(text=pb.TextBlock(stored=stored))
    if stored.media_type.startswith("image/"):
        return pb.ContentBlock(image=pb.ImageBlock(stored=stored))
    return pb.ContentBlock(file=pb.FileBlock(stored=stored))


def result_message(results: Sequence[pb.ToolResultBlock]) -> pb.Message:
    """Return results of calls as one message."""
    return pb.Message(
        role=pb.ROLE_TOOL, content=[pb.ContentBlock(tool_result=result) for result in results]
    )


def tool_result_block(call_id: str, result: transition_pb2.ToolResult) -> pb.ToolResultBlock:
    """Return a tool's result under its call; what the model sees is its content, else its output."""
    return pb.ToolResultBlock(
        call_id=call_id,
        is_error=result.is_error,
        content=result.content or value_blocks(result.output),
    )


def error_block(call_id: str, text: str) -> pb.ToolResultBlock:
    """Return an error as the result of a call."""
    return pb.ToolResultBlock(call_id=call_id, is_error=True, content=[text_block(text)])


def failure_text(why: failure_pb2.Failure) -> str:
    """Return a failure as the model sees it."""
    return f"{why.code}: {why.message}"


def refused_call(problem: str) -> task_pb2.TaskResult:
    """Return the result of a call that the server itself answers with an error."""
    output = value_pb2.Value(text=problem)
    return task_pb2.TaskResult(tool=transition_pb2.ToolResult(output=output, is_error=True))


def list_value(values: Sequence[value_pb2.Value]) -> value_pb2.Value:
    """Return values as one JSON list: text as strings, JSON as it is, anything else by its reference."""
    items: list[JsonValue] = [_item(value) for value in values]
    return from_json(items)


def _item(value: value_pb2.Value) -> JsonValue:
    match value.WhichOneof("kind"):
        case "json":
            return json_text.parse(value.json)
        case "stored":
            return {"stored": value.stored.digest, "media_type": value.stored.media_type}
        case "blob":
            return {"blob": value.blob.media_type}
        case "secret":
            return {"secret": value.secret.name}
        case _:
            return value.text
