"""Whether the JSON Schema of a tool can be used.

Rules: what is taken here is what `core/schemas.py` can check a call's arguments with later. A schema is looked through once,
not once per executor: that takes milliseconds, and a fleet that connects again brings the same ones. So what was found is
remembered, by the digest of the text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core.canonical import digest_text
from stepgraph_server.core.schema_shape import SchemaError, read_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph.v1 import llm_pb2

#: Beyond this what was found is forgotten, all at once; then it is found again.
MAX_REMEMBERED: Final = 10_000

_found: Final[dict[tuple[str, bool], str]] = {}


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


def look_through(definitions: list[llm_pb2.ToolDefinition]) -> Iterator[None]:
    """Look through schemas that are not known yet, one at each step.

    Whoever takes many definitions on an event loop lets others have a turn at each step; afterwards `schema_problem` has
    its answers ready.
    """
    for definition in definitions:
        for text, of_arguments in (
            (definition.input_schema, True),
            (definition.output_schema, False),
        ):
            if text and (digest_text(text), of_arguments) not in _found:
                schema_problem(text, of_arguments=of_arguments)
                yield


def _find(text: str, *, of_arguments: bool) -> str:
    try:
        schema = read_schema(text).root
    except SchemaError as error:
        return str(error)
    if of_arguments and schema.get("type") != "object":
        return 'must have "type": "object"'
    return ""
