"""Replies of a model stand-in as OpenAI's chat completions write them.

The shapes are those of https://platform.openai.com/docs/api-reference/chat; `reasoning_content` is what servers that are
compatible with it (llama.cpp, vLLM, DeepSeek) added for thoughts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.support.model_stand_in_replies import (
    Answer,
    Call,
    RedactedThinking,
    RefusalText,
    Text,
    Thinking,
    Trouble,
    pieces,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.model_stand_in_replies import Part

PATH: Final = "/v1/chat/completions"
#: Fixed, so that what is sent never depends on the clock.
CREATED: Final = 1_700_000_000


def events(answer: Answer, request: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the server-sent events of an answer."""
    yield _chunk(answer, request, {"role": "assistant", "content": None})
    call_index = -1
    for part in answer.parts:
        call_index += isinstance(part, Call)
        for delta in _deltas(part, call_index, answer.delivery.piece_chars):
            yield _chunk(answer, request, delta)
    yield _chunk(answer, request, {}, finish_reason=_finish_reason(answer))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield _event({**_head(answer, request, chunk=True), "choices": [], "usage": _usage(answer)})
    yield b"data: [DONE]\n\n"


def body(answer: Answer, request: Mapping[str, Any]) -> bytes:
    """Return an answer as one JSON object."""
    calls = [
        {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": part.args}}
        for part in answer.parts
        if isinstance(part, Call)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": _joined(answer, Text) or None}
    if calls:
        message["tool_calls"] = calls
    for name, kind in (("reasoning_content", Thinking), ("refusal", RefusalText)):
        if text := _joined(answer, kind):
            message[name] = text
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(answer)}
    whole = {**_head(answer, request, chunk=False), "choices": [choice], "usage": _usage(answer)}
    return json.dumps(whole).encode()


def trouble_body(trouble: Trouble) -> bytes:
    """Return the body of an error."""
    error = {
        "message": trouble.message,
        "type": trouble.kind,
        "param": None,
        "code": trouble.code,
    }
    return json.dumps({"error": error}).encode()


def trouble_event(trouble: Trouble) -> bytes:
    """Return an error in the middle of a stream."""
    return b"data: " + trouble_body(trouble) + b"\n\n"


def _deltas(part: Part, call_index: int, piece_chars: int) -> Iterator[dict[str, Any]]:
    match part:
        case Text():
            yield from ({"content": piece} for piece in pieces(part.text, piece_chars))
        case Thinking():
            yield from ({"reasoning_content": piece} for piece in pieces(part.text, piece_chars))
        case RefusalText():
            yield from ({"refusal": piece} for piece in pieces(part.text, piece_chars))
        case Call():
            function = {"name": part.name, "arguments": ""}
            first = {"index": call_index, "id": part.id, "type": "function", "function": function}
            yield {"tool_calls": [first]}
            for piece in pieces(part.args, piece_chars):
                yield {"tool_calls": [{"index": call_index, "function": {"arguments": piece}}]}
        case RedactedThinking():
            message = "chat completions have no redacted thinking"
            raise ValueError(message)


def _joined(answer: Answer, kind: type[Text | Thinking | RefusalText]) -> str:
    return "".join(part.text for part in answer.parts if isinstance(part, kind))


def _finish_reason(answer: Answer) -> str:
    if answer.stop:
        return answer.stop
    return "tool_calls" if any(isinstance(part, Call) for part in answer.parts) else "stop"


def _usage(answer: Answer) -> dict[str, Any]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning_tokens},
    }


def _head(answer: Answer, request: Mapping[str, Any], *, chunk: bool) -> dict[str, Any]:
    return {
        "id": "chatcmpl-stand-in",
        "object": "chat.completion.chunk" if chunk else "chat.completion",
        "created": CREATED,
        "model": answer.model or request.get("model", ""),
    }


def _chunk(
    answer: Answer,
    request: Mapping[str, Any],
    delta: Mapping[str, Any],
    finish_reason: str | None = None,
) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _event({**_head(answer, request, chunk=True), "choices": [choice]})


def _event(content: Mapping[str, Any]) -> bytes:
    # As it is, not escaped: a write may then end inside a character.
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + b"\n\n"
