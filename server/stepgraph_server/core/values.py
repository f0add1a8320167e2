"""Values: reading them, and checking them and what contains them before they are taken.

Rules: a value is opaque until something reads it, and then its JSON text is parsed once. A check reports everything that
is wrong, each with its path, and changes nothing. What passed a check is never checked again: everything behind it may
rely on the schema's limits, on JSON that parses, and on variants that are known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from stepgraph.v1 import conversation_pb2
from stepgraph.v1 import value_pb2 as pb
from stepgraph_server.core import json_text, names
from stepgraph_server.core.errors import StepgraphError, Violation
from stepgraph_server.core.text_cache import TextCache

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from stepgraph.v1 import state_pb2
    from stepgraph_server.core.json_text import JsonValue

MAX_PROVIDER_DATA_BYTES: Final = 64 * 1024
MAX_METADATA_ENTRIES: Final = 64
MAX_MEDIA_TYPE_CHARACTERS: Final = 256

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MAX_CACHED_CHARACTERS: Final = 8 * 1024 * 1024


class ValueNotReadable(StepgraphError):  # named for what is the case
    """A value has no content here: it is a blob, a reference, or the name of a secret. Expected; the graph's fault.

    Attributes:
        kind: The variant of the value.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLimits:
    """How large values may be.

    Attributes:
        max_inline_bytes: Text, JSON text or bytes that are part of a message.
        max_stored_bytes: What a reference refers to.
    """

    max_inline_bytes: int = 256 * 1024
    max_stored_bytes: int = 64 * 1024 * 1024


DEFAULT_LIMITS: Final = ValueLimits()


# ---- reading and writing ------------------------------------------------------------------

# What was parsed is shared by all who read it, so nobody may change it.
_parsed: Final[TextCache[tuple[JsonValue]]] = TextCache(_MAX_CACHED_CHARACTERS)


def to_json(value: pb.Value, *, name: str = "") -> JsonValue:
    """Return what a value says: text as a string, JSON as it is, the empty value as null. It must not be changed.

    `name` is what whoever wrote the graph calls the value; an error says it.

    Raises:
        ValueNotReadable: It is a blob, a reference, or the name of a secret.
    """
    match value.WhichOneof("kind"):
        case "text":
            return value.text
        case "json":
            return parse_json(value.json)
        case None:
            return None
        case "blob" | "stored" | "secret" as kind:
            raise ValueNotReadable(kind, _not_readable(value, name))
        case other:
            assert_never(other)


def _not_readable(value: pb.Value, name: str) -> str:
    what = name or "the value"
    if value.HasField("secret"):
        return f"{what} is the secret {value.secret.name}, whose content only executors know"
    if value.HasField("blob"):
        size, media_type = len(value.blob.data), value.blob.media_type or "no media type"
        return f"{what} is a blob of {size} bytes ({media_type}), which has no text; {HAND_ON}"
    stored = value.stored
    form = _FORMS.get(stored.form, "an unknown form")
    return (
        f"{what} is a stored value of {stored.size_bytes} bytes, {form} ({stored.digest}): its content is kept "
        f"outside of the run, so that no decision has to read it; {HAND_ON}"
    )


HAND_ON: Final = (
    "hand it on whole (as the last result, with output_variable, or as a message that is {{name}} alone), or let an "
    "executor return the part that is needed as a value of its own"
)

_FORMS: Final[Mapping[int, str]] = {
    pb.VALUE_FORM_TEXT: "text",
    pb.VALUE_FORM_JSON: "JSON",
    pb.VALUE_FORM_BLOB: "a blob",
}


def parse_json(text: str) -> JsonValue:
    """Parse the JSON text of a value, or find it among those that were parsed lately. It must not be changed.

    Raises:
        ValueNotReadable: It is not JSON that we take; it did not pass a check.
    """
    found = _parsed.get(text)
    if found is None:
        try:
            found = (json_text.parse(text),)
        except json_text.JsonTextError as error:
            raise ValueNotReadable("json", f"the value is not JSON: {error}") from None
        _parsed.put(text, found)
    return found[0]


def from_json(value: JsonValue) -> pb.Value:
    """Return a string as text, anything else as JSON.

    Raises:
        JsonTextError: It has no JSON text.
    """
    if isinstance(value, str):
        return pb.Value(text=value)
    return pb.Value(json=json_text.dump(value))


def equals_text(value: pb.Value | None, text: str) -> bool:
    """Whether a value equals a text that a graph wrote down.

    Text is compared as it is; a JSON number, boolean or null by what it says, so 3 equals 3.0. JSON strings, lists and
    objects, all other values, and no value equal nothing.
    """
    if value is None:
        return False
    kind = value.WhichOneof("kind")
    if kind == "text":
        return value.text == text
    if kind != "json":
        return False
    said_text = value.json
    if said_text.lstrip(" \t\r\n").startswith(('"', "[", "{")):
        return False  # without parsing: it may be large
    if said_text == text:
        return True
    try:
        said, wanted = parse_json(said_text), parse_json(text)
        return json_text.canonical(said) == json_text.canonical(wanted)
    except (ValueNotReadable, json_text.JsonTextError):
        return False


def copy(value: pb.Value) -> pb.Value:
    """Return a value of its own: one that is part of a parsed message keeps the whole message in memory."""
    own = pb.Value()
    own.CopyFrom(value)
    return own


# ---- checking -----------------------------------------------------------------------------


def check_value(
    value: pb.Value, path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with a value that must be there."""
    match value.WhichOneof("kind"):
        case None:
            return [_unset(path, "text, json, blob, stored or secret")]
        case "text":
            return _check_size(value.text, path, limits)
        case "json":
            return _check_size(value.json, path, limits) or _check_json(value.json, path)
        case "blob":
            return _check_blob(value.blob, f"{path}.blob", limits)
        case "stored":
            return _check_stored(value.stored, path, limits)
        case "secret":
            if names.is_variable(value.secret.name):
                return []
            return [
                Violation(
                    path=f"{path}.secret.name", message=f"must be a name, {names.VARIABLE_PATTERN}"
                )
            ]
        case other:
            assert_never(other)


def check_message(
    message: conversation_pb2.Message, path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with a message of a conversation.

    What a model made up is not judged here: names and arguments of its calls may be nonsense, which is told to the model.
    """
    found: list[Violation] = []
    role = message.role
    if role not in _ROLES:
        reason = (
            "INVALID_REQUEST" if role == conversation_pb2.ROLE_UNSPECIFIED else "UNKNOWN_VARIANT"
        )
        found.append(Violation(path=f"{path}.role", message="must be a known role", reason=reason))
    for index, block in enumerate(message.content):
        at = f"{path}.content[{index}]"
        found += check_block(block, at, limits)
        kind = block.WhichOneof("kind")
        if kind not in _BLOCKS.get(role, _ALL_BLOCKS):
            found.append(
                Violation(
                    path=at, message=f"a {kind} block can't be part of a message of this role"
                )
            )
    return found + check_metadata(message.metadata, f"{path}.metadata")


def check_block(
    block: conversation_pb2.ContentBlock, path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with a part of a message."""
    match block.WhichOneof("kind"):
        case None:
            return [_unset(path, "text, image, file, tool_call, tool_result or thinking")]
        case "text":
            return _check_text(block.text, f"{path}.text", limits)
        case "image":
            return _check_source(block.image, f"{path}.image", limits)
        case "file":
            return _check_source(block.file, f"{path}.file", limits)
        case "tool_call":
            return _check_call(block.tool_call, f"{path}.tool_call", limits)
        case "tool_result":
            return _check_result(block.tool_result, f"{path}.tool_result", limits)
        case "thinking":
            at = f"{path}.thinking"
            found = _check_size(block.thinking.text, f"{at}.text", limits)
            return found + _check_provider_data(block.thinking.provider_data, at)
        case other:
            assert_never(other)


def check_update(
    update: state_pb2.StateUpdate, path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with a change that somebody outside wants to make."""
    found = check_variables(update.variables, f"{path}.variables", limits)
    for name in update.variables:
        if names.is_reserved(name):
            found.append(
                Violation(path=f"{path}.variables.{name}", message="only the server writes it")
            )
    for index, name in enumerate(update.delete_variables):
        at = f"{path}.delete_variables[{index}]"
        if not names.is_variable(name):
            found.append(Violation(path=at, message=f"must be a name, {names.VARIABLE_PATTERN}"))
        elif name in update.variables:
            found.append(Violation(path=at, message=f"{name} is also written; do one of both"))
        elif names.is_reserved(name):
            found.append(Violation(path=at, message="only the server deletes it"))
    for index, message in enumerate(update.messages):
        found += check_message(message, f"{path}.messages[{index}]", limits)
    if update.HasField("decision"):
        found += check_decision(update.decision, f"{path}.decision", limits)
    if update.paradigm and not names.is_id(update.paradigm):
        found.append(no_id(f"{path}.paradigm"))
    return found


def check_decision(
    decision: state_pb2.GraphDecision, path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with a decision. The count of calls is not looked at; the server sets it."""
    match decision.WhichOneof("kind"):
        case None:
            return [_unset(path, "direct_answer, tool_calls, delegate or switch_paradigm")]
        case "direct_answer":
            return _check_size(decision.direct_answer.text, f"{path}.direct_answer.text", limits)
        case "tool_calls":
            return [
                violation
                for index, call in enumerate(decision.tool_calls.calls)
                for violation in _check_call(call, f"{path}.tool_calls.calls[{index}]", limits)
            ]
        case "delegate":
            at = f"{path}.delegate"
            found = _check_size(decision.delegate.task, f"{at}.task", limits)
            return (
                found
                if names.is_id(decision.delegate.agent_kind)
                else [*found, no_id(f"{at}.agent_kind")]
            )
        case "switch_paradigm":
            named = names.is_id(decision.switch_paradigm.paradigm)
            return [] if named else [no_id(f"{path}.switch_paradigm.paradigm")]
        case other:
            assert_never(other)


# ---- parts of checks ------------------------------------------------------------------------

_ROLES: Final = frozenset(conversation_pb2.Role.values()) - {conversation_pb2.ROLE_UNSPECIFIED}
_SHOWN_TO_MODELS: Final = ("text", "image", "file", None)
_ALL_BLOCKS: Final = (*_SHOWN_TO_MODELS, "tool_call", "tool_result", "thinking")
# By role, the blocks that its messages may have. One that is unset is reported for that alone.
_BLOCKS: Final[Mapping[int, Collection[str | None]]] = {
    conversation_pb2.ROLE_SYSTEM: _SHOWN_TO_MODELS,
    conversation_pb2.ROLE_USER: _SHOWN_TO_MODELS,
    conversation_pb2.ROLE_ASSISTANT: (*_SHOWN_TO_MODELS, "tool_call", "thinking"),
    conversation_pb2.ROLE_TOOL: ("tool_result", None),
}


def _unset(path: str, wanted: str) -> Violation:
    message = f"is unset, or a variant that this server does not know; set {wanted}"
    return Violation(path=path, message=message, reason="UNKNOWN_VARIANT")


def no_id(path: str) -> Violation:
    """Return that something is not a name as nodes and paradigms have them."""
    return Violation(path=path, message=f"must be a name, {names.ID_PATTERN}")


def _too_large(path: str, size: int, limit: int) -> Violation:
    message = f"has {size} bytes, of at most {limit}; store the value and send a reference"
    return Violation(path=path, message=message, reason="PAYLOAD_TOO_LARGE")


def _check_size(text: str, path: str, limits: ValueLimits) -> list[Violation]:
    # Nothing takes more than four bytes a character, so most texts need not be encoded to be measured.
    if len(text) * 4 <= limits.max_inline_bytes:
        return []
    size = len(text) if text.isascii() else len(text.encode())
    return (
        [] if size <= limits.max_inline_bytes else [_too_large(path, size, limits.max_inline_bytes)]
    )


def _check_json(text: str, path: str) -> list[Violation]:
    if _parsed.get(text) is not None:
        return []
    try:
        # Kept: whoever reads the value next need not parse it again.
        _parsed.put(text, (json_text.parse(text),))
    except json_text.JsonTextError as error:
        return [Violation(path=path, message=f"is not JSON: {error}", reason="JSON_INVALID")]
    return []


def _check_blob(blob: pb.Blob, path: str, limits: ValueLimits) -> list[Violation]:
    found: list[Violation] = []
    if len(blob.data) > limits.max_inline_bytes:
        found.append(_too_large(path, len(blob.data), limits.max_inline_bytes))
    return found + _check_media_type(blob.media_type, path)


def _check_media_type(media_type: str, path: str) -> list[Violation]:
    if len(media_type) <= MAX_MEDIA_TYPE_CHARACTERS:
        return []
    message = f"must have at most {MAX_MEDIA_TYPE_CHARACTERS} characters"
    return [Violation(path=f"{path}.media_type", message=message)]


def _check_stored(
    stored: pb.StoredValue,
    path: str,
    limits: ValueLimits,
    forms: Sequence[int] = (pb.VALUE_FORM_TEXT, pb.VALUE_FORM_JSON, pb.VALUE_FORM_BLOB),
) -> list[Violation]:
    at = f"{path}.stored"
    found: list[Violation] = []
    if not _DIGEST.fullmatch(stored.digest):
        message = "must be sha256: and 64 lower-case hexadecimal digits"
        found.append(Violation(path=f"{at}.digest", message=message))
    if stored.size_bytes > limits.max_stored_bytes:
        message = f"a stored value has at most {limits.max_stored_bytes} bytes"
        found.append(
            Violation(path=f"{at}.size_bytes", message=message, reason="PAYLOAD_TOO_LARGE")
        )
    if stored.form not in forms:
        known = stored.form in pb.ValueForm.values()
        message = "must be a form that can stand here"
        reason = "INVALID_REQUEST" if known else "UNKNOWN_VARIANT"
        found.append(Violation(path=f"{at}.form", message=message, reason=reason))
    if stored.media_type and stored.form in (pb.VALUE_FORM_TEXT, pb.VALUE_FORM_JSON):
        found.append(Violation(path=f"{at}.media_type", message="only a BLOB has a media type"))
    return found + _check_media_type(stored.media_type, at)


def _check_text(
    text: conversation_pb2.TextBlock, path: str, limits: ValueLimits
) -> list[Violation]:
    match text.WhichOneof("body"):
        case "text":
            found = _check_size(text.text, path, limits)
        case "stored":
            found = _check_stored(text.stored, path, limits, (pb.VALUE_FORM_TEXT,))
        case None:
            found = [_unset(path, "text or stored")]
        case other:
            assert_never(other)
    return found + _check_provider_data(text.provider_data, path)


def _check_source(
    block: conversation_pb2.ImageBlock | conversation_pb2.FileBlock, path: str, limits: ValueLimits
) -> list[Violation]:
    match block.WhichOneof("source"):
        case "blob":
            return _check_blob(block.blob, f"{path}.blob", limits)
        case "stored" if isinstance(block, conversation_pb2.ImageBlock):
            return _check_stored(block.stored, path, limits, (pb.VALUE_FORM_BLOB,))
        case "stored":
            return _check_stored(block.stored, path, limits)
        case "uri":
            return _check_size(block.uri, f"{path}.uri", limits)
        case None:
            return [_unset(path, "blob, stored or uri")]
        case other:
            assert_never(other)


def _check_call(
    call: conversation_pb2.ToolCallBlock, path: str, limits: ValueLimits
) -> list[Violation]:
    found = _check_size(call.args, f"{path}.args", limits)
    found += _check_size(call.name, f"{path}.name", limits)
    return found + _check_provider_data(call.provider_data, path)


def _check_result(
    result: conversation_pb2.ToolResultBlock, path: str, limits: ValueLimits
) -> list[Violation]:
    found: list[Violation] = []
    if not result.call_id:
        found.append(Violation(path=f"{path}.call_id", message="must be the id of a call"))
    for index, block in enumerate(result.content):
        at = f"{path}.content[{index}]"
        if block.WhichOneof("kind") in _SHOWN_TO_MODELS:
            found += check_block(block, at, limits)
        else:
            found.append(
                Violation(path=at, message="a result has text, image and file blocks only")
            )
    return found


def _check_provider_data(data: bytes, path: str) -> list[Violation]:
    if len(data) <= MAX_PROVIDER_DATA_BYTES:
        return []
    message = f"has {len(data)} bytes, of at most {MAX_PROVIDER_DATA_BYTES}"
    return [Violation(path=f"{path}.provider_data", message=message, reason="PAYLOAD_TOO_LARGE")]


def check_metadata(metadata: Mapping[str, str], path: str) -> list[Violation]:
    """Return what is wrong with facts that the server only keeps."""
    if len(metadata) <= MAX_METADATA_ENTRIES:
        return []
    message = f"has {len(metadata)} entries, of at most {MAX_METADATA_ENTRIES}"
    return [Violation(path=path, message=message, reason="LIMIT_EXCEEDED")]


def check_variables(
    variables: Mapping[str, pb.Value], path: str, limits: ValueLimits = DEFAULT_LIMITS
) -> list[Violation]:
    """Return what is wrong with names and values of variables."""
    found: list[Violation] = []
    for name, value in variables.items():
        if not names.is_variable(name):
            message = f"{name[: names.MAX_VARIABLE_CHARACTERS]!r} must be a name, {names.VARIABLE_PATTERN}"
            found.append(Violation(path=path, message=message))
        else:
            found += check_value(value, f"{path}.{name}", limits)
    return found
