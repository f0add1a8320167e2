"""YAML and JSON as trees in which every part knows its line and column.

Rules: this module knows nothing of graphs. It builds nothing but the three classes below, whatever a file says: no
tags, no objects; aliases are followed, and the tree that they unfold to is bounded. Equal keys are left in, for
whoever reads the tree to refuse with both places at hand.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from ruamel.yaml.error import StringMark
    from ruamel.yaml.nodes import Node as YamlNode

#: A graph may have 2 MiB in the schema's own encoding; text needs more room, with comments and indentation.
MAX_TEXT_BYTES = 8 * 1024 * 1024
#: How many parts a document may have once its aliases are unfolded; a graph of 2,000 nodes has about 50,000.
MAX_PARTS = 1_000_000
#: How deep it may nest: as deep as protobuf itself.
MAX_DEPTH = 100


class Kind(Enum):
    """What a scalar is, as it was written."""

    TEXT = "text"
    INTEGER = "an integer"
    NUMBER = "a number"
    BOOLEAN = "true or false"
    NULL = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place in a text; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A piece of text, with what it is if it stands there without quotes."""

    kind: Kind
    text: str
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    items: tuple[Part, ...]
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """A mapping, in the order in which it was written; equal keys are possible."""

    entries: tuple[tuple[Scalar, Part], ...]
    mark: Mark


Part: TypeAlias = Scalar | Items | Entries


class DocumentError(ValueError):
    """A text is not the YAML or JSON that is taken here. Expected; `mark` says where it stops being so."""

    def __init__(self, message: str, mark: Mark) -> None:
        super().__init__(f"line {mark.line}, column {mark.column}: {message}")
        self.message = message
        self.mark = mark


START = Mark(line=1, column=1)


def read_document(text: str, *, is_json: bool) -> Part:
    """Return the tree of a YAML or JSON text.

    Raises:
        DocumentError: it is neither, it is too large or too deep, or it has tags.
    """
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        message = f"the file has {size:,} bytes; at most {MAX_TEXT_BYTES:,} are read"
        raise DocumentError(message, START)
    return _JsonReader(text).document() if is_json else _read_yaml(text)


def _whole(text: str, mark: Mark) -> str:
    """Return text with escaped surrogates joined to characters; half of a pair is no text in any encoding."""
    if not _SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError as error:
        message = "half of a surrogate pair is no character; write the whole pair, or the character itself"
        raise DocumentError(message, mark) from error


_SURROGATE = re.compile("[\ud800-\udfff]")

# YAML -------------------------------------------------------------------------------------------------------------

_KINDS = {
    "tag:yaml.org,2002:str": Kind.TEXT,
    "tag:yaml.org,2002:int": Kind.INTEGER,
    "tag:yaml.org,2002:float": Kind.NUMBER,
    "tag:yaml.org,2002:bool": Kind.BOOLEAN,
    "tag:yaml.org,2002:null": Kind.NULL,
    # 2026-01-31 without quotes: whoever wants a time reads it from the text.
    "tag:yaml.org,2002:timestamp": Kind.TEXT,
    # A lone `=` or `<<`, which are nothing special in YAML 1.2.
    "tag:yaml.org,2002:value": Kind.TEXT,
    "tag:yaml.org,2002:merge": Kind.TEXT,
}
_PLAIN_TAGS = {*_KINDS, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


def _read_yaml(text: str) -> Part:
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise DocumentError(_yaml_trouble(error), _mark(error.problem_mark)) from error
    except YAMLError as error:
        raise DocumentError(str(error).splitlines()[0], START) from error
    except RecursionError as error:
        message = f"it is nested more than {MAX_DEPTH} deep"
        raise DocumentError(message, START) from error
    if root is None:
        message = "the file is empty"
        raise DocumentError(message, START)
    return _YamlConverter().part(root, 1)


def _yaml_trouble(error: MarkedYAMLError) -> str:
    words = [each for each in (error.context, error.problem) if each]
    text = ": ".join(words) or "this is not YAML"
    # The scanner's words for the most common slip of all.
    if "'\\t'" in text:
        text = "a tab can't indent YAML; use spaces"
    return text


def _mark(mark: StringMark | None) -> Mark:
    return START if mark is None else Mark(line=mark.line + 1, column=mark.column + 1)


class _YamlConverter:
    """Turns ruamel's nodes into ours, and counts them: an alias costs as much as what it stands for."""

    def __init__(self) -> None:
        self._parts = 0

    def part(self, node: YamlNode, depth: int) -> Part:
        mark = _mark(node.start_mark)
        self._parts += 1
        if self._parts > MAX_PARTS:
            message = f"it has more than {MAX_PARTS:,} parts once its aliases are unfolded"
            raise DocumentError(message, mark)
        if depth > MAX_DEPTH:
            message = f"it is nested more than {MAX_DEPTH} deep"
            raise DocumentError(message, mark)
        if node.tag not in _PLAIN_TAGS:
            message = f"tags such as {node.tag} are not taken; write plain YAML"
            raise DocumentError(message, mark)
        match node:
            case ScalarNode():
                return Scalar(kind=_KINDS[node.tag], text=_whole(node.value, mark), mark=mark)
            case SequenceNode():
                items = tuple(self.part(each, depth + 1) for each in node.value)
                return Items(items=items, mark=mark)
            case MappingNode():
                entries = tuple(
                    (self._key(key, depth + 1), self.part(value, depth + 1))
                    for key, value in node.value
                )
                return Entries(entries=entries, mark=mark)
            case _:
                message = "this kind of YAML is not taken"
                raise DocumentError(message, mark)

    def _key(self, node: YamlNode, depth: int) -> Scalar:
        key = self.part(node, depth)
        if not isinstance(key, Scalar):
            message = "a key must be a name, not a list or a mapping"
            raise DocumentError(message, key.mark)
        return key


# JSON -------------------------------------------------------------------------------------------------------------

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"true|false|null")


class _JsonReader:
    """Reads one JSON text. The standard parser knows no places, which are the point here."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def document(self) -> Part:
        """Return the tree of the whole text."""
        self._skip_space()
        part = self._part(1)
        if self._at < len(self._text):
            self._fail("expected the end of the file")
        return part

    def _part(self, depth: int) -> Part:
        if depth > MAX_DEPTH:
            self._fail(f"it is nested more than {MAX_DEPTH} deep")
        match self._text[self._at : self._at + 1]:
            case "{":
                return self._entries(depth)
            case "[":
                return self._items(depth)
            case _:
                return self._scalar()

    def _entries(self, depth: int) -> Entries:
        mark = self._mark()
        entries: list[tuple[Scalar, Part]] = []
        self._take("{")
        while not self._took("}"):
            if entries:
                self._take(",", "'}'")
            if not self._text.startswith('"', self._at):
                self._fail('expected a key in double quotes, such as "nodes"')
            key = self._scalar()
            self._take(":")
            entries.append((key, self._part(depth + 1)))
        return Entries(entries=tuple(entries), mark=mark)

    def _items(self, depth: int) -> Items:
        mark = self._mark()
        items: list[Part] = []
        self._take("[")
        while not self._took("]"):
            if items:
                self._take(",", "']'")
            items.append(self._part(depth + 1))
        return Items(items=tuple(items), mark=mark)

    def _scalar(self) -> Scalar:
        mark = self._mark()
        if found := _STRING.match(self._text, self._at):
            try:
                text = str(json.loads(found.group()))
            except json.JSONDecodeError as error:
                self._fail(f"this is not a JSON string: {error.msg}")
            scalar = Scalar(kind=Kind.TEXT, text=_whole(text, mark), mark=mark)
        elif found := _NUMBER.match(self._text, self._at):
            kind = Kind.NUMBER if found.group(1) or found.group(2) else Kind.INTEGER
            scalar = Scalar(kind=kind, text=found.group(), mark=mark)
        elif found := _WORD.match(self._text, self._at):
            kind = Kind.NULL if found.group() == "null" else Kind.BOOLEAN
            scalar = Scalar(kind=kind, text=found.group(), mark=mark)
        else:
            self._fail("expected a value: text in double quotes, a number, [ or {")
        self._at = found.end()
        self._skip_space()
        return scalar

    def _took(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        self._skip_space()
        return True

    def _take(self, character: str, other: str = "") -> None:
        if not self._took(character):
            self._fail(f"expected '{character}'" + (f" or {other}" if other else ""))

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None, "it matches the empty text as well"
        self._at = found.end()

    def _mark(self) -> Mark:
        line = bisect_right(self._line_starts, self._at)
        return Mark(line=line, column=self._at - self._line_starts[line - 1] + 1)

    def _fail(self, message: str) -> NoReturn:
        end = " before the end of the file" if self._at >= len(self._text) else ""
        raise DocumentError(message + end, self._mark())
