"""Whether the JSON Schema of a tool can be used.

Rules: a schema is checked once, not once per executor: checking a small one takes milliseconds, and a fleet that connects
again brings the same ones. What was found is remembered by the digest of the text. Safe to call from any thread, so that
many new schemas can be checked beside the event loop.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from stepgraph_server.core.canonical import digest_text
from stepgraph_server.core.json_text import JsonLimits, JsonTextError, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph_server.core.json_text import JsonValue

MAX_SCHEMA_BYTES: Final = 64 * 1024
#: Beyond this what was found is forgotten, all at once; then it is found again.
MAX_REMEMBERED: Final = 10_000

_LIMITS: Final = JsonLimits(max_bytes=MAX_SCHEMA_BYTES)
_found: dict[tuple[str, bool], str] = {}


def schema_problem(text: str, *, of_arguments: bool) -> str:
    """Say what is wrong with a schema; empty if nothing is. An empty text is no schema, and right.

    A schema of arguments must be of type object.
    """
    if not text:
        return ""
    key = (digest_text(text), of_arguments)
    problem = _found.get(key)
    if problem is None:
        problem = _find(text, of_arguments=of_arguments)
        if len(_found) >= MAX_REMEMBERED:
            _found.clear()
        _found[key] = problem
    return problem


def _find(text: str, *, of_arguments: bool) -> str:
    try:
        schema = parse(text, _LIMITS)
    except JsonTextError as error:
        return str(error)
    if not isinstance(schema, dict):
        return "must be a JSON object"
    if of_arguments and schema.get("type") != "object":
        return 'must have "type": "object"'
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"is not a JSON Schema at {error.json_path}: {error.message[:200]}"
    return next(_traps(schema), "")


def _traps(schema: JsonValue) -> Iterator[str]:
    """Yield what the metaschema lets through and a validator stumbles over: references abroad, broken patterns."""
    open_: list[JsonValue] = [schema]
    while open_:
        value = open_.pop()
        if isinstance(value, list):
            open_.extend(value)
        elif isinstance(value, dict):
            open_.extend(value.values())
            for word in ("$ref", "$dynamicRef"):
                target = value.get(word)
                # A validator would fetch it: a schema must not make the server call somebody.
                if isinstance(target, str) and not target.startswith("#"):
                    yield f"refers to {target[:100]!r}; only references within the schema are allowed"
            pattern = value.get("pattern")
            if isinstance(pattern, str) and not _compiles(pattern):
                yield f"has a broken pattern: {pattern[:100]!r}"


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True
