"""Messages that nodes append to the conversation.

Rules: a node that performs a call writes the result under that call; any other node's output is one user message with
the node in its metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1 import task_pb2, transition_pb2, value_pb2
from stepgraph_server.core import json_text
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES
from stepgraph_server.core.templates import Template
from stepgraph_server.core.values import from_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.view import View


def text_block(text: str) -> pb.ContentBlock:
    """Return text as a block."""
    return pb.ContentBlock(text=pb.TextBlock(text=text))


def user_message(text: str, node_id: str) -> pb.Message:
    """Return a message of the user's side that a node speaks."""
    return pb.Message(role=pb.ROLE_USER, content=[text_block(text)], metadata={"node": node_id})


def template_message(view: View, text: str, node_id: str) -> pb.Message:
    """Return what a template gives as a message of the user's side; a value that has no text is shown as it is.

    Raises RenderError, and ValueNotReadable where a value without text is only a part of the template.
    """
    whole = view.whole(text)
    if whole is not None:
        return output_message(whole, node_id)
    return user_message(Template.compile(text).render(view, max_bytes=MAX_RENDERED_BYTES), node_id)


def output_message(value: value_pb2.Value, node_id: str) -> pb.Message:
    """Return a node's output as a message."""
    return pb.Message(role=pb.ROLE_USER, content=value_blocks(value), metadata={"node": node_id})


def value_blocks(value: value_pb2.Value) -> list[pb.ContentBlock]:
    """Return a value as blocks that a model can read."""
    block = pb.ContentBlock()
    show_value(block, value)
    return [block]


def show_value(block: pb.ContentBlock, value: value_pb2.Value) -> None:
    """Make an empty block show a value, so that a model can read it."""
    match value.WhichOneof("kind"):
        case "text":
            block.text.text = value.text
        case "json":
            block.text.text = value.json
        case "blob" if value.blob.media_type.startswith("image/"):
            block.image.blob.CopyFrom(value.blob)
        case "blob":
            block.file.blob.CopyFrom(value.blob)
        case "stored":
            _show_stored(block, value.stored)
        case "secret":
            block.text.text = f"(secret {value.secret.name})"
        case _:
            block.text.text = ""


def _show_stored(block: pb.ContentBlock, stored: value_pb2.StoredValue) -> None:
    if stored.form != value_pb2.VALUE_FORM_BLOB:
        block.text.stored.CopyFrom(stored)
    elif stored.media_type.startswith("image/"):
        block.image.stored.CopyFrom(stored)
    else:
        block.file.stored.CopyFrom(stored)


def result_message(
    call_id: str, provider_id: str, content: Sequence[pb.ContentBlock]
) -> pb.Message:
    """Return what came of a call, which is not an error, as a message."""
    message, result = _new_result(call_id, provider_id)
    result.content.extend(content)
    return message


def tool_message(call_id: str, provider_id: str, tool: transition_pb2.ToolResult) -> pb.Message:
    """Return a tool's result under its call as a message; what the model sees is its content, else its output.

    One message per result: such a message is arranged as it is, while one with several has to be taken apart.
    """
    message, result = _new_result(call_id, provider_id)
    if tool.is_error:
        result.is_error = True
    if tool.content:
        result.content.extend(tool.content)
    else:
        show_value(result.content.add(), tool.output)
    return message


def _new_result(call_id: str, provider_id: str) -> tuple[pb.Message, pb.ToolResultBlock]:
    # Built in place: a block that is made apart is copied into its message, and its payload with it.
    message = pb.Message(role=pb.ROLE_TOOL)
    result = message.content.add().tool_result
    result.call_id = call_id
    if provider_id:
        result.provider_id = provider_id
    return message, result


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
