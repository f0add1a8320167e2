"""Replies of a model stand-in as Anthropic's messages API writes them.

The shapes are those of https://docs.anthropic.com/en/api/messages and its page on streaming.
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

PATH: Final = "/v1/messages"


def events(answer: Answer, request: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the server-sent events of an answer."""
    start = {
        **_head(answer, request),
        "content": [],
        "stop_reason": None,
        "usage": {**_usage(answer), "output_tokens": 1},
    }
    yield _event("message_start", message=start)
    yield _event("ping")
    for index, part in enumerate(answer.parts):
        yield _event("content_block_start", index=index, content_block=_opened(part))
        for delta in _deltas(part, answer.delivery.piece_chars):
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    delta = {"stop_reason": _stop_reason(answer), "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage={"output_tokens": answer.output_tokens})
    yield _event("message_stop")


def body(answer: Answer, request: Mapping[str, Any]) -> bytes:
    """Return an answer as one JSON object. Arguments that are no JSON can only be streamed."""
    whole = {
        **_head(answer, request),
        "content": [_whole(part) for part in answer.parts],
        "stop_reason": _stop_reason(answer),
        "usage": _usage(answer),
    }
    return json.dumps(whole).encode()


def trouble_body(trouble: Trouble) -> bytes:
    """Return the body of an error."""
    return json.dumps(_error(trouble)).encode()


def trouble_event(trouble: Trouble) -> bytes:
    """Return an error in the middle of a stream."""
    return b"event: error\ndata: " + trouble_body(trouble) + b"\n\n"


def _error(trouble: Trouble) -> dict[str, Any]:
    error = {"type": trouble.kind, "message": trouble.message}
    return {"type": "error", "error": error, "request_id": "req_stand_in"}


def _opened(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": ""}
        case Thinking():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case RedactedThinking():
            return {"type": "redacted_thinking", "data": part.data}
        case Call():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
        case RefusalText():
            message = "the messages API refuses by its stop reason `refusal`"
            raise ValueError(message)


def _deltas(part: Part, piece_chars: int) -> Iterator[dict[str, Any]]:
    match part:
        case Text():
            for piece in pieces(part.text, piece_chars):
                yield {"type": "text_delta", "text": piece}
        case Thinking():
            for piece in pieces(part.text, piece_chars):
                yield {"type": "thinking_delta", "thinking": piece}
            yield {"type": "signature_delta", "signature": part.signature}
        case Call():
            yield {"type": "input_json_delta", "partial_json": ""}
            for piece in pieces(part.args, piece_chars):
                yield {"type": "input_json_delta", "partial_json": piece}
        case RedactedThinking() | RefusalText():
            return


def _whole(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case Call():
            return {**_opened(part), "input": json.loads(part.args)}
        case RedactedThinking() | RefusalText():
            return _opened(part)


def _stop_reason(answer: Answer) -> str:
    if answer.stop:
        return answer.stop
    return "tool_use" if any(isinstance(part, Call) for part in answer.parts) else "end_turn"


def _usage(answer: Answer) -> dict[str, Any]:
    # Here, and not at OpenAI, what came from the cache is no part of `input_tokens`.
    return {
        "input_tokens": answer.input_tokens - answer.cached_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": answer.output_tokens,
    }


def _head(answer: Answer, request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "msg_stand_in",
        "type": "message",
        "role": "assistant",
        "model": answer.model or request.get("model", ""),
        "stop_sequence": None,
    }


def _event(kind: str, **content: object) -> bytes:
    data = json.dumps({"type": kind, **content}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()
