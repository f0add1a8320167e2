"""Templates: text, or JSON, with `{{placeholders}}` for what a run knows.

The rules of this file:

- One pass: what is put in is never looked at again, so a value that contains `{{x}}` stays as it is.
- Everything that is wrong with a template itself is found when it is compiled; only names and paths wait for the run.
- A template knows a `Scope`, never the state of a run. What a value looks like as text is decided here alone.
- It is compiled in one walk, without regular expressions; output is counted while it grows.

    {{name}}           the value; an error if there is none
    {{name?}}          the same, but empty if there is none
    {{name.key.0}}     a part of a JSON value: objects by key, arrays by index. Variables may have dots in their names:
                       of the names that exist the longest wins, the rest is the path
    {{{{               two braces as they are

Spaces around the name are allowed. Text goes in as it is, and so does a JSON string; any other JSON as JSON text. In JSON
templates a string that is one placeholder and nothing else becomes the value itself, with its type; only values are
interpolated, not keys, since two keys could become equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias, assert_never

from stepgraph_server.core import json_text
from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.core.values import ValueNotReadable, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.core.json_text import JsonValue

MAX_TEMPLATE_CHARACTERS: Final = 256 * 1024
MAX_PLACEHOLDERS: Final = 1_000
MAX_NAME_CHARACTERS: Final = 128
MAX_PLACEHOLDER_CHARACTERS: Final = 512
"""A name, its path, and the spaces around them. Each dot may cost a look-up, so their number must be bounded too."""
MAX_LISTED_NAMES: Final = 20

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_INDEX: Final = re.compile(r"[0-9]{1,9}")


class TemplateError(StepgraphError):
    """A template that can't be compiled. Expected; the fault of whoever wrote the graph.

    Attributes:
        message: What is wrong, without the place.
        position: The character, from 0; in a JSON template, of the string at `path`, if that is JSON.
        path: In a JSON template, where the string is, or where the JSON breaks; else empty.
    """

    def __init__(self, *, message: str, position: int, path: str = "") -> None:
        super().__init__(f"{message} at character {position}" + (f" of {path}" if path else ""))
        self.message = message
        self.position = position
        self.path = path


class RenderError(StepgraphError):
    """A template that can't be filled in. Expected: the node fails with this code and message."""

    code: ClassVar[str] = "RENDER"

    def __init__(self, *, message: str) -> None:
        super().__init__(message)
        self.message = message


class UnsetName(RenderError):
    """Nothing has the name of a placeholder.

    Attributes:
        placeholder: As it is written, without the braces.
        name: What is missing.
        known: The names that exist, in order, at most `MAX_LISTED_NAMES` of them.
        known_count: How many there are.
    """

    code = "UNSET_NAME"

    def __init__(self, *, placeholder: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        self.placeholder = placeholder
        self.name = name
        self.known = tuple(names[:MAX_LISTED_NAMES])
        self.known_count = len(names)
        super().__init__(
            message=f"{{{{{placeholder}}}}}: {name} is not set; there is {_listing(names)}"
        )


class BadPath(RenderError):
    """A value exists, but a placeholder's path does not lead through it.

    Attributes:
        placeholder: As it is written, without the braces.
        segment: The part of the path that can't be followed.
        found: What is there instead, such as `a list of 3 items`.
    """

    code = "BAD_PATH"

    def __init__(self, *, placeholder: str, segment: str, found: str) -> None:
        self.placeholder = placeholder
        self.segment = segment
        self.found = found
        super().__init__(message=f'{{{{{placeholder}}}}}: no "{segment}" in {found}')


class BadValue(RenderError):
    """A variable that should hold JSON does not. Names its placeholder."""

    code = "BAD_VALUE"


class OutputTooLarge(RenderError):
    """A template gives more than its limit, in bytes or depth."""

    code = "OUTPUT_TOO_LARGE"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextValue:
    """A value that is text: it goes in as it is, and no path leads into it."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTextValue:
    """A value that is JSON text: parsed only if a path, or its type, is asked for."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonTreeValue:
    """A value that is parsed already. It is shared with what is rendered and must not change."""

    tree: JsonValue


Resolved: TypeAlias = TextValue | JsonTextValue | JsonTreeValue


class Scope(Protocol):
    """What the placeholders of one rendering may name."""

    def lookup(self, name: str) -> Resolved | None:
        """Give the value of a name, or None. Asked for every name that a placeholder could mean."""
        ...

    def names(self) -> Iterable[str]:
        """List the names that exist; asked only to explain an error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeholder:
    """One `{{…}}` of a template.

    Attributes:
        written: The dotted name, without braces, spaces and question mark.
        optional: Whether it is empty if unset.
        readings: What it may mean: a variable's name and the path into it, the longest name first.
    """

    written: str
    optional: bool
    position: int
    readings: tuple[tuple[str, tuple[str, ...]], ...]


class _Allowance:
    """Counts down how many bytes a rendering may still produce."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes

    def spend(self, text: str) -> None:
        self._left -= len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if self._left < 0:
            raise OutputTooLarge(message=f"the template gives more than {self._max_bytes} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A text with placeholders, compiled. Made by `compile`.

    Attributes:
        parts: Literal texts and placeholders, in order.
    """

    parts: tuple[str | Placeholder, ...]

    @staticmethod
    def compile(text: str) -> Template:
        """Compile a text.

        Raises:
            TemplateError: A placeholder is not closed, empty or malformed, or the text is over a limit.
        """
        return _compile_cached(text) if len(text) <= _MAX_CACHED_CHARACTERS else _compile(text)

    def names(self) -> frozenset[str]:
        """List the dotted names that the placeholders use, as they are written."""
        return frozenset(placeholder.written for placeholder in self.placeholders())

    def lone_name(self) -> str:
        """Return the dotted name of the placeholder that is all of the template; empty if there is anything else."""
        found = self.placeholders()
        return found[0].written if found and len(self.parts) == 1 else ""

    def placeholders(self) -> tuple[Placeholder, ...]:
        """List the placeholders, in order."""
        return tuple(part for part in self.parts if isinstance(part, Placeholder))

    def render(self, scope: Scope, *, max_bytes: int) -> str:
        """Fill in the placeholders.

        Raises:
            UnsetName: A placeholder that is not optional names nothing.
            BadPath: The path of a placeholder does not lead through its value.
            BadValue: A value that should be JSON is not.
            OutputTooLarge: The result would have more than `max_bytes` bytes of UTF-8.
        """
        return _render_text(self, scope, _Allowance(max_bytes))


_Node: TypeAlias = "bool | int | float | str | Template | list[_Node] | dict[str, _Node] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgsTemplate:
    """A JSON value with placeholders in its strings, compiled. Made by `compile`.

    Attributes:
        root: The JSON value, with a `Template` for each string that has a placeholder or an escape.
    """

    root: _Node

    @staticmethod
    def compile(text: str) -> ArgsTemplate:
        """Compile a JSON text; its strings are looked at after it has been parsed.

        Raises:
            TemplateError: It is not JSON, a placeholder in it is malformed, or it is over a limit.
        """
        return (_compile_args_cached if len(text) <= _MAX_CACHED_CHARACTERS else _compile_args)(
            text
        )

    def names(self) -> frozenset[str]:
        """List the dotted names that the placeholders use, as they are written."""
        found: set[str] = set()
        _collect_names(self.root, found)
        return frozenset(found)

    def render(self, scope: Scope, *, max_bytes: int) -> JsonValue:
        """Fill in the placeholders. The result shares parts with this template and with its values.

        Raises:
            UnsetName: As for `Template.render`, like BadPath and BadValue.
            OutputTooLarge: What is put in has more than `max_bytes` bytes, or the result is deeper than JSON may be.
        """
        return _fill(self.root, scope, _Allowance(max_bytes), json_text.MAX_DEPTH)


# ---- compiling ---------------------------------------------------------------------------------


def _compile(text: str) -> Template:
    if len(text) > MAX_TEMPLATE_CHARACTERS:
        raise TemplateError(message=f"more than {MAX_TEMPLATE_CHARACTERS} characters", position=0)
    parts: list[str | Placeholder] = []
    literal: list[str] = []
    count = at = 0
    while (start := text.find("{{", at)) >= 0:
        literal.append(text[at:start])
        if text.startswith("{{{{", start):
            literal.append("{{")
            at = start + 4
            continue
        end = text.find("}}", start + 2)
        if end < 0:
            raise TemplateError(message="{{ is never closed", position=start)
        count += 1
        if count > MAX_PLACEHOLDERS:
            why = f"more than {MAX_PLACEHOLDERS} placeholders"
            raise TemplateError(message=why, position=start)
        if before := "".join(literal):
            parts.append(before)
        literal = []
        parts.append(_placeholder(text[start + 2 : end], start))
        at = end + 2
    literal.append(text[at:])
    if rest := "".join(literal):
        parts.append(rest)
    return Template(parts=tuple(parts))


def _placeholder(content: str, position: int) -> Placeholder:
    if len(content) > MAX_PLACEHOLDER_CHARACTERS:
        raise TemplateError(
            message=f"a placeholder has more than {MAX_PLACEHOLDER_CHARACTERS} characters",
            position=position,
        )
    written = content.strip(" \t\r\n")
    optional = written.endswith("?")
    written = written.removesuffix("?")
    if not written:
        raise TemplateError(message="the placeholder is empty", position=position)
    if not _NAME.fullmatch(written):
        # What is known from other languages first: it reads like a mistake in the name, and is one in the brackets.
        hint = "an item of a list is name.0" if "[" in written else "{{{{ is a literal {{"
        raise TemplateError(message=f"{content[:40]!r} is not a name ({hint})", position=position)
    readings = tuple(_readings(written))
    if not readings:
        raise TemplateError(
            message=f"the name has more than {MAX_NAME_CHARACTERS} characters", position=position
        )
    return Placeholder(written=written, optional=optional, position=position, readings=readings)


def _readings(written: str) -> Iterable[tuple[str, tuple[str, ...]]]:
    segments = written.split(".")
    for count in range(len(segments), 0, -1):
        name = ".".join(segments[:count])
        if len(name) <= MAX_NAME_CHARACTERS:
            yield name, tuple(segments[count:])


def _compile_args(text: str) -> ArgsTemplate:
    try:
        tree = json_text.parse(text, json_text.JsonLimits(max_bytes=4 * MAX_TEMPLATE_CHARACTERS))
    except json_text.JsonTextError as error:
        raise TemplateError(
            message=f"not JSON: {error.message}",
            position=_offset(text, error.line, error.column),
            path=error.path,
        ) from error
    return ArgsTemplate(root=_compile_node(tree, "$"))


def _offset(text: str, line: int, column: int) -> int:
    before = text.split("\n", line - 1)[: line - 1]
    return sum(len(each) + 1 for each in before) + max(column - 1, 0)


def _compile_node(node: JsonValue, path: str) -> _Node:
    # The depth of what was parsed is bounded, so recursion is safe, here and elsewhere.
    if isinstance(node, str) and "{{" in node:
        try:
            return Template.compile(node)
        except TemplateError as why:
            raise TemplateError(message=why.message, position=why.position, path=path) from None
    if isinstance(node, list):
        return [_compile_node(item, f"{path}[{index}]") for index, item in enumerate(node)]
    if isinstance(node, dict):
        return {key: _compile_node(item, f"{path}.{key[:40]}") for key, item in node.items()}
    return node


def _collect_names(node: _Node, found: set[str]) -> None:
    if isinstance(node, Template):
        found |= node.names()
    elif isinstance(node, (list, dict)):
        for item in node.values() if isinstance(node, dict) else node:
            _collect_names(item, found)


# Large templates are rare and would fill the memory.
_MAX_CACHED_CHARACTERS: Final = 16 * 1024
_compile_cached: Final = lru_cache(maxsize=1_024)(_compile)
_compile_args_cached: Final = lru_cache(maxsize=256)(_compile_args)


# ---- rendering ---------------------------------------------------------------------------------


def _render_text(template: Template, scope: Scope, allowance: _Allowance) -> str:
    out: list[str] = []
    for part in template.parts:
        text = part if isinstance(part, str) else _text_of(part, _resolve(part, scope))
        allowance.spend(text)
        out.append(text)
    return "".join(out)


def _fill(node: _Node, scope: Scope, allowance: _Allowance, depth: int) -> JsonValue:
    """Render a node that may be `depth` levels deep."""
    if isinstance(node, Template):
        if len(node.parts) == 1 and isinstance(node.parts[0], Placeholder):
            return _typed(node.parts[0], scope, allowance, depth)
        return _render_text(node, scope, allowance)
    if isinstance(node, list):
        return [_fill(item, scope, allowance, depth - 1) for item in node]
    if isinstance(node, dict):
        return {key: _fill(item, scope, allowance, depth - 1) for key, item in node.items()}
    return node


def _typed(placeholder: Placeholder, scope: Scope, allowance: _Allowance, depth: int) -> JsonValue:
    resolved = _resolve(placeholder, scope)
    value = "" if resolved is None else _tree_of(placeholder, resolved)
    allowance.spend(_text_of(placeholder, resolved))
    if isinstance(value, (dict, list)) and json_text.is_deeper_than(value, depth):
        text = f"{{{{{placeholder.written}}}}}: the result is nested too deeply"
        raise OutputTooLarge(message=text)
    return value


def _resolve(placeholder: Placeholder, scope: Scope) -> Resolved | None:
    """Find what a placeholder stands for; None if it is optional and there is nothing."""
    for name, path in placeholder.readings:
        resolved = scope.lookup(name)
        if resolved is not None:
            return _follow(placeholder, resolved, path) if path else resolved
    if placeholder.optional:
        return None
    shortest = placeholder.readings[-1][0]
    raise UnsetName(placeholder=placeholder.written, name=shortest, known=scope.names())


def _follow(placeholder: Placeholder, resolved: Resolved, path: tuple[str, ...]) -> Resolved | None:
    """Go down a path; None if the placeholder is optional and the path ends early at nothing."""
    value = _tree_of(placeholder, resolved)
    for segment in path:
        match value:
            case dict() if segment in value:
                value = value[segment]
            case list() if (index := _index(segment)) is not None and index < len(value):
                value = value[index]
            case dict() | list() | None if placeholder.optional:
                return None
            case _:
                found = _describe(value)
                raise BadPath(placeholder=placeholder.written, segment=segment, found=found)
    return JsonTreeValue(tree=value)


def _index(segment: str) -> int | None:
    return int(segment) if _INDEX.fullmatch(segment) else None


def _describe(value: JsonValue) -> str:
    if isinstance(value, dict):
        return f"an object, which has {_listing(sorted(value))}"
    if isinstance(value, list):
        return f"a list of {len(value)} items"
    if isinstance(value, str):
        return "a text"
    return "null" if value is None else "a number or truth value"


def _listing(names: list[str]) -> str:
    shown = ", ".join(name[:MAX_NAME_CHARACTERS] for name in names[:MAX_LISTED_NAMES])
    more = len(names) - MAX_LISTED_NAMES
    return (shown or "nothing") + (f" and {more} more" if more > 0 else "")


def _tree_of(placeholder: Placeholder, resolved: Resolved) -> JsonValue:
    match resolved:
        case TextValue():
            return resolved.text
        case JsonTreeValue():
            return resolved.tree
        case JsonTextValue():
            return _parse(placeholder, resolved.text)
        case _:
            assert_never(resolved)


def _text_of(placeholder: Placeholder, resolved: Resolved | None) -> str:
    if resolved is None:
        return ""
    # A JSON string goes in without its quotes. Other JSON text goes in as it was sent, byte for byte.
    if isinstance(resolved, JsonTextValue) and not resolved.text.lstrip(" \t\r\n").startswith('"'):
        return resolved.text
    tree = _tree_of(placeholder, resolved)
    try:
        return tree if isinstance(tree, str) else json_text.dump(tree)
    except json_text.JsonTextError as error:
        raise BadValue(message=f"{{{{{placeholder.written}}}}}: {error}") from error


def _parse(placeholder: Placeholder, text: str) -> JsonValue:
    try:
        # Kept by its text: many placeholders may lead into one large value.
        return parse_json(text)
    except ValueNotReadable as error:
        raise BadValue(message=f"{{{{{placeholder.written}}}}}: {error}") from error
