"""How servers that speak OpenAI's API differ from each other.

Rules: a difference is a field here with a default that fits most servers, never a guess made from an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

MaxTokensField: TypeAlias = Literal["max_tokens", "max_completion_tokens"]

#: Hosts of OpenAI's own models, which refuse `max_tokens`; the others know it, and often nothing else.
_OWN_HOSTS: Final = ("api.openai.com", ".openai.azure.com", ".api.openai.com")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What one server wants otherwise than others.

    Attributes:
        max_tokens_field: How the limit of tokens is called.
        sends_thinking: Thoughts of earlier replies go back as `reasoning_content`, which some reasoning models need between
            calls of tools, and others refuse.
        asks_for_usage: A stream is asked to end with its usage. Without it a streamed reply counts as having cost nothing.
    """

    max_tokens_field: MaxTokensField = "max_tokens"
    sends_thinking: bool = False
    asks_for_usage: bool = True


def dialect_of(base_url: str) -> Dialect:
    """Return the dialect that the server at a base URL is known to speak."""
    host = urlsplit(base_url).hostname or ""
    is_own = any(host == own or (own[0] == "." and host.endswith(own)) for own in _OWN_HOSTS)
    return Dialect(max_tokens_field="max_completion_tokens" if is_own else "max_tokens")
