"""The tree of a checked CEL expression, read from what the CEL library writes.

The library parses and checks, but shows its tree only in serialized form. What an expression names, and what it may cost,
must be read from that tree and never from the source: a second parser could disagree with the first.

Rules: this file knows the encoding (`cel.expr.CheckedExpr`) and nothing of what nodes mean to us. It decodes the wire
format itself, since protobuf decoders refuse more than 100 levels and a tree of legal depth may have more. What it does
not know it refuses. Recursion is safe: the library's parser bounds the depth of the tree.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from stepgraph_server.core.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Literal: TypeAlias = "bool | int | float | str | bytes | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """A literal."""

    id: int
    value: Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A root, a type, or the variable of an enclosing fold."""

    id: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """`operand.field`, or `has(operand.field)` if `tests_presence`."""

    id: int
    operand: Node
    field: str
    tests_presence: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An operator, such as `_+_`, or a function; `args` starts with the target of a method."""

    id: int
    function: str
    args: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """`[items]`."""

    id: int
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """`{key: value}`, or, with a `message_name`, the construction of a message."""

    id: int
    message_name: str
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What the macros all, exists, exists_one, map and filter become: a loop over `items`.

    `accumulator` starts as `start`; while `condition` holds, each item is bound to `variable` and `step` gives the next
    accumulator; `result` is made of the last one.
    """

    id: int
    variable: str
    items: Node
    accumulator: str
    start: Node
    condition: Node
    step: Node
    result: Node

    @property
    def collects(self) -> bool:
        """Whether it makes a list, as map and filter do."""
        return isinstance(self.start, ListOf)


Node: TypeAlias = Constant | Name | Select | Call | ListOf | MapOf | Fold


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A checked expression: its outermost node, and where in the source each node stands, by id, in characters."""

    root: Node
    positions: Mapping[int, int]


class TreeUnreadable(StepgraphError):
    """The library wrote what this file does not know: another version, or a construct that we don't offer."""

    def __init__(self, *, what: str) -> None:
        super().__init__(what)


def decode(serialized: bytes) -> Tree:
    """Read the tree of an expression from what `Expression.serialize` gives.

    Raises:
        TreeUnreadable: It is not the encoding that this file knows.
    """
    try:
        # A google.protobuf.Any, whose field 2 is the CheckedExpr.
        checked = _only(_fields(memoryview(serialized)), 2)
        fields = dict(_fields(checked))
        info = fields.get(5, memoryview(b""))
        if not isinstance(info, memoryview):
            raise TreeUnreadable(what="source_info")
        return Tree(root=_node(_bytes(fields[4])), positions=dict(_positions(info)))
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise TreeUnreadable(what=str(error)) from error


def children(node: Node) -> tuple[Node, ...]:
    """List the nodes right below a node, in the order of the source where it has one."""
    match node:
        case Constant() | Name():
            return ()
        case Select():
            return (node.operand,)
        case Call():
            return node.args
        case ListOf() | MapOf():
            return node.items
        case Fold():
            return (node.items, node.start, node.condition, node.step, node.result)
        case _:
            assert_never(node)


def walk(node: Node) -> Iterator[Node]:
    """Visit a node and all nodes below it, each before those below it."""
    open_nodes = [node]
    while open_nodes:
        current = open_nodes.pop()
        yield current
        open_nodes.extend(reversed(children(current)))


def static_variable(node: Node) -> str | None:
    """Name the variable that a node reads or tests, if it says so: `vars.x`, `vars["x"]`, `"x" in vars`."""
    match node:
        case Select(operand=Name(name="vars"), field=name):
            return name
        case Call(function="_[_]", args=(Name(name="vars"), Constant(value=str() as name))):
            return name
        case Call(function="@in", args=(Constant(value=str() as name), Name(name="vars"))):
            return name
        case _:
            return None


# ---- the wire format --------------------------------------------------------------------------

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_Field: TypeAlias = "int | float | memoryview"


def _fields(data: memoryview) -> Iterator[tuple[int, _Field]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            yield tag >> 3, number
        elif kind == _LENGTH:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise TreeUnreadable(what="a field is cut off")
            yield tag >> 3, data[at : at + length]
            at += length
        elif kind == _FIXED64:
            yield tag >> 3, struct.unpack_from("<d", data, at)[0]
            at += 8
        else:
            raise TreeUnreadable(what=f"wire type {kind}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def _bytes(field: _Field) -> memoryview:
    if not isinstance(field, memoryview):
        raise TreeUnreadable(what="a message is missing")
    return field


def _text(field: _Field) -> str:
    return bytes(_bytes(field)).decode()


def _only(fields: Iterator[tuple[int, _Field]], wanted: int) -> memoryview:
    for number, field in fields:
        if number == wanted:
            return _bytes(field)
    raise TreeUnreadable(what=f"field {wanted} is missing")


def _positions(info: memoryview) -> Iterator[tuple[int, int]]:
    for number, field in _fields(info):
        if number == 4:  # map<int64 id, int32 position>
            entry = dict(_fields(_bytes(field)))
            yield _signed(entry.get(1, 0)), _signed(entry.get(2, 0))


def _signed(field: _Field) -> int:
    if not isinstance(field, int):
        raise TreeUnreadable(what="an integer is missing")
    return field - (1 << 64) if field >= 1 << 63 else field


def _node(data: memoryview) -> Node:
    node_id = 0
    kind = 0
    content = memoryview(b"")
    for number, field in _fields(data):
        if number == 2:
            node_id = _signed(field)
        else:
            kind, content = number, _bytes(field)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise TreeUnreadable(what=f"expression kind {kind}")
    return decoder(node_id, content)


def _constant(node_id: int, data: memoryview) -> Node:
    for number, field in _fields(data):
        match number:
            case 1:
                return Constant(id=node_id, value=None)
            case 2:
                return Constant(id=node_id, value=bool(field))
            case 3:
                return Constant(id=node_id, value=_signed(field))
            case 4 | 5 if not isinstance(field, memoryview):
                return Constant(id=node_id, value=field)
            case 6:
                return Constant(id=node_id, value=_text(field))
            case 7:
                return Constant(id=node_id, value=bytes(_bytes(field)))
            case _:
                raise TreeUnreadable(what=f"constant kind {number}")
    raise TreeUnreadable(what="an empty constant")


def _name(node_id: int, data: memoryview) -> Node:
    return Name(id=node_id, name=bytes(_only(_fields(data), 1)).decode())


def _select(node_id: int, data: memoryview) -> Node:
    fields = dict(_fields(data))
    operand = _node(_bytes(fields[1]))
    return Select(
        id=node_id, operand=operand, field=_text(fields[2]), tests_presence=bool(fields.get(3))
    )


def _call(node_id: int, data: memoryview) -> Node:
    function = ""
    target: list[Node] = []
    args: list[Node] = []
    for number, field in _fields(data):
        match number:
            case 1:
                target = [_node(_bytes(field))]
            case 2:
                function = _text(field)
            case 3:
                args.append(_node(_bytes(field)))
            case _:
                raise TreeUnreadable(what=f"field {number} of a call")
    return Call(id=node_id, function=function, args=(*target, *args))


def _list(node_id: int, data: memoryview) -> Node:
    items: list[Node] = []
    for number, field in _fields(data):
        if number != 1:
            raise TreeUnreadable(what=f"field {number} of a list")
        items.append(_node(_bytes(field)))
    return ListOf(id=node_id, items=tuple(items))


def _map(node_id: int, data: memoryview) -> Node:
    message_name = ""
    items: list[Node] = []
    for number, field in _fields(data):
        if number == 1:
            message_name = _text(field)
            continue
        for entry_number, entry_field in _fields(_bytes(field)):
            if entry_number in (3, 4):
                items.append(_node(_bytes(entry_field)))
            elif entry_number == 5:
                raise TreeUnreadable(what="an optional entry")
    return MapOf(id=node_id, message_name=message_name, items=tuple(items))


def _fold(node_id: int, data: memoryview) -> Node:
    fields = dict(_fields(data))
    if 8 in fields:
        raise TreeUnreadable(what="a comprehension over two variables")
    return Fold(
        id=node_id,
        variable=_text(fields[1]),
        items=_node(_bytes(fields[2])),
        accumulator=_text(fields[3]),
        start=_node(_bytes(fields[4])),
        condition=_node(_bytes(fields[5])),
        step=_node(_bytes(fields[6])),
        result=_node(_bytes(fields[7])),
    )


_DECODERS: Final = {3: _constant, 4: _name, 5: _select, 6: _call, 7: _list, 8: _map, 9: _fold}
