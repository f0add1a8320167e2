"""`provider_options`: what only one provider understands, merged into its request.

Rules: an option wins over what the request would say by itself. What another field of the request decides, or what this client
relies on to read the reply, can't be set here: the error names the field to use instead.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NoReturn

from stepgraph_client.task_errors import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping

OPTIONS_INVALID: Final = "OPTIONS_INVALID"


def options_of(text: str, reserved: Mapping[str, str]) -> dict[str, object]:
    """Return the options of a request; empty text means none.

    Args:
        text: The field `provider_options`.
        reserved: What can't be set, each with what to use instead: "the field `messages`".

    Raises:
        Failed: OPTIONS_INVALID; the text is no JSON object, or has a name in it that is reserved.
    """
    if not text:
        return {}
    try:
        options = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        _refuse(f"is not JSON: {error}")
    if not isinstance(options, dict):
        _refuse(f"must be a JSON object, not {json.dumps(options)[:80]}")
    for name in options:
        if name in reserved:
            _refuse(f"can't set {name!r}; use {reserved[name]}")
    return options


def _refuse_constant(name: str) -> object:
    message = f"JSON has no {name}"
    raise ValueError(message)


def _refuse(why: str) -> NoReturn:
    message = f"provider_options {why}"
    raise Failed(OPTIONS_INVALID, message, retryable=False, details={"field": "provider_options"})
