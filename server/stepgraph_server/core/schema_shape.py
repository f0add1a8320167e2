"""What a JSON Schema may look like to be taken.

Rules: everything about a schema that could surprise while a value is checked is found here, once, when it is compiled.
Schemas are looked for where the standard has them and nowhere else: data under `const`, `enum`, `default` or `examples`
is not a schema, whatever it looks like.

Left out, and refused by name: references out of the schema, `$dynamicRef`, and `$id` or `$schema` below the root, which
change what a reference means. A `$schema` at the root is ignored: what tools write there says little about what they use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema import exceptions as jsonschema_errors

from stepgraph_server.core import json_text
from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.core.schema_patterns import Pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepgraph_server.core.json_text import JsonValue

MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_PATTERNS: Final = 32
MAX_SHOWN_CHARACTERS: Final = 200

_LIMITS: Final = json_text.JsonLimits(max_bytes=MAX_SCHEMA_BYTES)

# Where subschemas stand.
_SCHEMA: Final = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LIST_OF_SCHEMAS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAP_OF_SCHEMAS: Final = (
    "$defs",
    "definitions",
    "dependentSchemas",
    "patternProperties",
    "properties",
)


class SchemaError(StepgraphError):
    """A text is not a JSON Schema that we take. Expected; the fault of whoever wrote the schema.

    Attributes:
        message: What is wrong, without the place.
        path: Where in the schema, such as `$.properties.limit.type`.
    """

    def __init__(self, *, message: str, path: str = "$") -> None:
        super().__init__(f"{message} at {path}")
        self.message = message
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaShape:
    """A schema that was looked through.

    Attributes:
        root: The schema.
        patterns: All its patterns, compiled.
        weights: How many values stand under a `const` or `enum`, by the identity of what stands there: what comparing
            with it may cost.
    """

    root: dict[str, JsonValue]
    patterns: Mapping[str, Pattern]
    weights: Mapping[int, int]


def read_schema(text: str) -> SchemaShape:
    """Read a schema.

    Raises:
        SchemaError: It is not JSON, not a schema, too large, or uses what is left out.
    """
    try:
        root = json_text.parse(text, _LIMITS)
    except json_text.JsonTextError as error:
        raise SchemaError(message=f"it is not JSON: {error.message}", path=error.path) from None
    if not isinstance(root, dict):
        raise SchemaError(message="it is not a JSON object")
    for word in ("$schema", "$id"):
        if isinstance(root.get(word), str):
            del root[word]
    _check_by_metaschema(root)
    return _look_through(root)


def path_text(parts: object) -> str:
    """Write a path for people, such as `$.items[3].name`, from the keys and indices that lead there."""
    text = "$"
    for part in parts if isinstance(parts, (list, tuple)) else ():
        if isinstance(part, int):
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}"
        else:
            text += f"[{json_text.dump(part)}]"
    return cut(text)


def cut(text: str) -> str:
    """Return a text that is short enough to be part of a message."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"


def _check_by_metaschema(root: dict[str, JsonValue]) -> None:
    try:
        # Without formats: they would try patterns with Python's engine, whose syntax is another.
        Draft202012Validator.check_schema(root, format_checker=FormatChecker(()))
    except jsonschema_errors.SchemaError as error:
        raise SchemaError(
            message=cut(error.message), path=path_text(list(error.absolute_path))
        ) from None
    except RecursionError:
        raise SchemaError(message="it is nested too deep") from None


def _look_through(root: dict[str, JsonValue]) -> SchemaShape:
    patterns: dict[str, Pattern] = {}
    weights: dict[int, int] = {}
    references: list[tuple[str, str]] = []
    schemas: set[int] = set()
    unevaluated_at = ""
    for schema, path in _subschemas(root):
        schemas.add(id(schema))
        _refuse_left_out(schema, path, is_root=schema is root)
        for pattern in _patterns_of(schema):
            _compile(pattern, path, patterns)
        for word in ("const", "enum"):
            if word in schema:
                weights[id(schema[word])] = _count(schema[word])
        if "$ref" in schema:
            references.append((str(schema["$ref"]), path))
        if "unevaluatedProperties" in schema:
            unevaluated_at = path
    for reference, path in references:
        target = _resolve(root, reference, path)
        if not isinstance(target, bool) and id(target) not in schemas:
            raise SchemaError(message=f"{cut(reference)} is not a schema", path=path)
    if unevaluated_at and any("patternProperties" in each for each, _ in _subschemas(root)):
        # jsonschema would try these patterns with Python's engine, in a place where we can't stop it.
        message = "unevaluatedProperties and patternProperties can't stand in one schema"
        raise SchemaError(message=message, path=unevaluated_at)
    return SchemaShape(root=root, patterns=patterns, weights=weights)


def _subschemas(root: dict[str, JsonValue]) -> Iterator[tuple[dict[str, JsonValue], str]]:
    """Yield all schemas that are objects, with their paths, the outer before the inner."""
    found: list[tuple[JsonValue, str]] = [(root, "$")]
    while found:
        schema, path = found.pop()
        if not isinstance(schema, dict):
            continue
        yield schema, path
        found += [(schema[word], f"{path}.{word}") for word in _SCHEMA if word in schema]
        for word in _LIST_OF_SCHEMAS:
            items = schema.get(word)
            if isinstance(items, list):
                found += [(item, f"{path}.{word}[{index}]") for index, item in enumerate(items)]
        for word in _MAP_OF_SCHEMAS:
            named = schema.get(word)
            if isinstance(named, dict):
                found += [
                    (item, f"{path}.{word}{path_text([key])[1:]}") for key, item in named.items()
                ]


def _refuse_left_out(schema: dict[str, JsonValue], path: str, *, is_root: bool) -> None:
    if "$dynamicRef" in schema:
        raise SchemaError(message="$dynamicRef is not supported; use $ref", path=path)
    if not is_root and ("$id" in schema or "$schema" in schema):
        raise SchemaError(message="$id and $schema may stand at the root only", path=path)


def _patterns_of(schema: dict[str, JsonValue]) -> list[str]:
    named = schema.get("patternProperties")
    patterns = list(named) if isinstance(named, dict) else []
    pattern = schema.get("pattern")
    return [*patterns, pattern] if isinstance(pattern, str) else patterns


def _compile(pattern: str, path: str, patterns: dict[str, Pattern]) -> None:
    if pattern in patterns:
        return
    if len(patterns) >= MAX_PATTERNS:
        raise SchemaError(message=f"it has more than {MAX_PATTERNS} patterns", path=path)
    try:
        patterns[pattern] = Pattern(pattern)
    except ValueError as error:
        raise SchemaError(message=str(error), path=path) from None


def _count(value: JsonValue) -> int:
    count = 0
    found = [value]
    while found:
        item = found.pop()
        count += 1
        if isinstance(item, dict):
            found.extend(item.values())
        elif isinstance(item, list):
            found.extend(item)
    return count


def _resolve(root: dict[str, JsonValue], reference: str, path: str) -> JsonValue:
    """Return what a reference points to; only pointers from the root are taken, such as `#/$defs/item`."""
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        message = (
            f"the reference {cut(reference)} must point into this schema, such as #/$defs/item"
        )
        raise SchemaError(message=message, path=path)
    target: JsonValue = root
    for step in unquote(reference[2:]).split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict) and key in target:
            target = target[key]
        elif isinstance(target, list) and key.isdecimal() and int(key) < len(target):
            target = target[int(key)]
        else:
            raise SchemaError(
                message=f"the reference {cut(reference)} points to nothing", path=path
            )
    return target
