"""What a model stand-in is told to reply, in words that hold for every provider.

Rules: a reply is data, so a test reads as what the provider did. How a reply is written down is the business of one module for each
protocol; how its bytes reach the caller is said by `Delivery`. The provider's own words (stop reasons, kinds of errors) are
given as they are: turning them into ours is what is tested.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """The model says something."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """The model thinks. A signature is what Anthropic wants back."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedThinking:
    """Anthropic's model thinks what nobody may read."""

    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The model wants a tool to be run; `args` is the text that it writes, JSON or not."""

    name: str
    args: str = "{}"
    id: str = "call_1"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalText:
    """OpenAI's model says in a field of its own that it will not."""

    text: str


Part: TypeAlias = Text | Thinking | RedactedThinking | Call | RefusalText


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How the bytes of a reply reach the caller.

    Attributes:
        piece_chars: How many characters of a text or of arguments one delta has.
        write_bytes: The stream is written in pieces of this size, wherever that cuts it. 0: an event at a time.
        hold_after: After so many events nothing comes until `ModelStandIn.release`, or the caller has gone.
        drop_after: After so many events the connection is closed, as if the provider had died.
        trouble_after: After so many events an error is an event of the stream, and its last.
        trouble: That error.
    """

    piece_chars: int = 4
    write_bytes: int = 0
    hold_after: int | None = None
    drop_after: int | None = None
    trouble_after: int | None = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A reply of the model.

    Attributes:
        parts: What it consists of, in order. Several calls are parallel calls.
        stop: The provider's word for why the model stopped. Empty: the usual one for the parts.
        input_tokens: All tokens read; protocols that count the cached ones apart subtract them.
        output_tokens: All tokens written.
        cached_tokens: Of those read, what came from the provider's cache.
        reasoning_tokens: Of those written, what was thought, where a protocol says so.
        model: The name under which the model answers. Empty: the one that was asked.
    """

    parts: tuple[Part, ...]
    stop: str = ""
    input_tokens: int = 12
    output_tokens: int = 7
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    model: str = ""
    delivery: Delivery = field(default_factory=Delivery)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An error of the provider, in the body that its protocol gives errors.

    Attributes:
        status: The HTTP status.
        kind: The provider's word for it: `rate_limit_error`, `insufficient_quota`.
        message: What it says.
        headers: More headers, such as `retry-after`.
        code: OpenAI's second word for it.
    """

    status: int
    kind: str = "api_error"
    message: str = "something is wrong at the provider"
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """Bytes as they are: what no protocol allows."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Reply: TypeAlias = Answer | Trouble | Raw


def says(*texts: str) -> Answer:
    """Return an answer that is only text."""
    return Answer(parts=tuple(Text(text=text) for text in texts))


def calls(*wanted: Call) -> Answer:
    """Return an answer that only asks for tools."""
    return Answer(parts=wanted)


def pieces(text: str, size: int) -> list[str]:
    """Return a text in pieces of so many characters; one empty piece of an empty text."""
    return [text[at : at + size] for at in range(0, len(text), size)] or [""]
