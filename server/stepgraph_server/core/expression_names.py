"""What an expression names: its roots, its variables, and the paths that it takes through them.

Rules: all of this is read from the tree, once, when the expression is compiled. Only what is named is converted for an
evaluation, so what is missed here would be missing there: whatever can't be told statically counts as reading everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from stepgraph_server.core.expression_tree import (
    Call,
    Constant,
    Fold,
    ListOf,
    MapOf,
    Name,
    Node,
    Select,
    static_variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepgraph_server.core.expression_tree import Tree

Segment: TypeAlias = "str | int | None"
"""A key, an index, or None for any item."""

ROOTS: Final[Mapping[str, frozenset[str]]] = {
    "vars": frozenset(),
    "last_result": frozenset(),
    "last_error": frozenset(),
    "decision": frozenset({"kind", "text", "calls", "agent_kind", "task", "paradigm"}),
    "paradigm": frozenset(),
    "iterations": frozenset(),
    "messages_count": frozenset(),
    "last_message": frozenset(),
    "edge": frozenset({"traversals"}),
}
"""The names that an expression can use; of those whose fields are fixed, the fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A way through the values that an expression takes: a root, then keys and indexes."""

    segments: tuple[Segment, ...]
    position: int

    def until(self, count: int) -> Path:
        """Cut it off after so many segments."""
        return Path(segments=self.segments[:count], position=self.position)

    def __str__(self) -> str:
        parts = [str(self.segments[0])]
        for segment in self.segments[1:]:
            if isinstance(segment, str):
                parts.append(f".{segment}" if segment.isidentifier() else f'["{segment}"]')
            else:
                parts.append(f"[{'*' if segment is None else segment}]")
        return "".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """What an expression reads.

    Attributes:
        names: The roots.
        variables: Of `vars`, the variables; None if it can't be told, so that all are needed.
    """

    names: frozenset[str]
    variables: frozenset[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that an expression may not do, and where."""

    message: str
    position: int
    hint: str
    name: str = ""
    known: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """All that can be told statically.

    Attributes:
        roots: What is read.
        root_order: The names of the roots, sorted: sets have another order in each process.
        variable_order: Likewise the variables; None if all are read.
        paths: The paths taken, in the order of the source; used to explain an error.
        ordered: The paths to what map() and filter() go over. An object there is an error: its keys come in another
            order in each process, and a list made in that order would differ from one evaluation to the next.
        problems: What the expression may not do.
    """

    roots: Roots
    root_order: tuple[str, ...]
    variable_order: tuple[str, ...] | None
    paths: tuple[Path, ...]
    ordered: tuple[Path, ...]
    problems: tuple[Problem, ...]


def read_names(tree: Tree) -> Names:
    """Read what an expression names."""
    reader = _Reader(tree)
    reader.visit(tree.root, {})
    variables = None if reader.reads_all else tuple(sorted(reader.variables))
    return Names(
        roots=Roots(
            names=frozenset(reader.roots),
            variables=None if variables is None else frozenset(variables),
        ),
        root_order=tuple(sorted(reader.roots)),
        variable_order=variables,
        paths=tuple(sorted(reader.paths.values(), key=lambda path: path.position)),
        ordered=tuple(reader.ordered),
        problems=tuple(sorted(reader.problems, key=lambda problem: problem.position)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Origin:
    """Where a value comes from, as far as it can be told: its path, its items, and whether it must be a list."""

    path: tuple[Segment, ...] | None = None
    items: _Origin | None = None
    is_list: bool = False

    def item(self) -> _Origin:
        if self.items is not None:
            return self.items
        return _Origin(path=(*self.path, None)) if self.path is not None else _UNKNOWN


_UNKNOWN: Final = _Origin()


class _Reader:
    """One walk over a tree. `visit` gives the origin of a node's value."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.roots: set[str] = set()
        self.variables: set[str] = set()
        self.reads_all = False
        self.paths: dict[tuple[Segment, ...], Path] = {}
        self.ordered: list[Path] = []
        self.problems: list[Problem] = []

    def visit(self, node: Node, scope: Mapping[str, _Origin]) -> _Origin:
        """Note what a node names, and tell where its value comes from."""
        variable = static_variable(node)
        if variable is not None:
            self.roots.add("vars")
            self.variables.add(variable)
            return self._variable(node, variable)
        match node:
            case Constant():
                return _UNKNOWN
            case Name():
                return self._name(node, scope)
            case Select():
                return self._select(node, scope)
            case Call():
                return self._call(node, scope)
            case ListOf():
                found = [self.visit(item, scope) for item in node.items]
                same = bool(found) and all(item == found[0] for item in found)
                return _Origin(is_list=True, items=found[0] if same else None)
            case MapOf():
                self._message(node)
                for item in node.items:
                    self.visit(item, scope)
                return _UNKNOWN
            case Fold():
                return self._fold(node, scope)
            case _:
                assert_never(node)

    def _position(self, node: Node) -> int:
        return self._tree.positions.get(node.id, 0)

    def _note(self, node: Node, segments: tuple[Segment, ...]) -> _Origin:
        self.paths.setdefault(segments, Path(segments=segments, position=self._position(node)))
        return _Origin(path=segments)

    def _variable(self, node: Node, name: str) -> _Origin:
        tests = isinstance(node, Call) and node.function == "@in"
        if tests or (isinstance(node, Select) and node.tests_presence):
            return _UNKNOWN
        return self._note(node, ("vars", name))

    def _name(self, node: Name, scope: Mapping[str, _Origin]) -> _Origin:
        if node.name in scope:
            return scope[node.name]
        if node.name not in ROOTS:
            return _UNKNOWN  # the name of a type
        self.roots.add(node.name)
        if node.name == "vars":
            self.reads_all = True
        return _Origin(path=(node.name,))

    def _select(self, node: Select, scope: Mapping[str, _Origin]) -> _Origin:
        origin = self.visit(node.operand, scope)
        fields = ROOTS[str(origin.path[0])] if origin.path and len(origin.path) == 1 else None
        if fields and node.field not in fields:
            self._unknown_field(node, str(origin.path[0] if origin.path else ""), fields)
        if node.tests_presence or origin.path is None:
            return _UNKNOWN
        return self._note(node, (*origin.path, node.field))

    def _unknown_field(self, node: Select, root: str, fields: frozenset[str]) -> None:
        self.problems.append(
            Problem(
                message=f"{root} has no {node.field}",
                position=self._position(node),
                hint="",
                name=node.field,
                known=tuple(sorted(fields)),
            )
        )

    def _call(self, node: Call, scope: Mapping[str, _Origin]) -> _Origin:
        origins = [self.visit(arg, scope) for arg in node.args]
        match node.function:
            case "_[_]":
                key = node.args[1]
                if origins[0].path is None or not isinstance(key, Constant):
                    return origins[0].item()
                if isinstance(key.value, (str, int)) and not isinstance(key.value, bool):
                    return self._note(node, (*origins[0].path, key.value))
                return _UNKNOWN
            case "dyn":
                return origins[0]
            case "_?_:_" if origins[1] == origins[2]:
                return origins[1]
            case "_?_:_":
                return _Origin(is_list=origins[1].is_list and origins[2].is_list)
            case "_+_":
                # Of what can be added, only lists can be looped over.
                return _Origin(is_list=True, items=origins[1].items)
            case _:
                return _UNKNOWN

    def _message(self, node: MapOf) -> None:
        if node.message_name:
            # Values of a type that JSON does not have are of no use here, and no message is any expression's business.
            message = f"{node.message_name} can't be made in an expression"
            self.problems.append(
                Problem(message=message, position=self._position(node), hint="use {…}")
            )

    def _fold(self, node: Fold, scope: Mapping[str, _Origin]) -> _Origin:
        items = self.visit(node.items, scope)
        self._loop_variable(node)
        self.visit(node.start, scope)
        inside = {**scope, node.variable: items.item(), node.accumulator: _UNKNOWN}
        self.visit(node.condition, inside)
        step = self.visit(_added(node.step), inside)
        if isinstance(node.step, Call) and node.step.function == "_?_:_":
            self.visit(node.step, inside)
        self.visit(node.result, {**scope, node.accumulator: _UNKNOWN})
        if not node.collects:
            return _UNKNOWN
        if items.path is not None and not items.is_list:
            self.ordered.append(Path(segments=items.path, position=self._position(node.items)))
        elif not items.is_list:
            self._unordered(node)
        return _Origin(is_list=True, items=step.items)

    def _loop_variable(self, node: Fold) -> None:
        if node.variable in ROOTS:
            message = f"{node.variable} is a name that exists already"
            hint = "give the loop variable another name"
            self.problems.append(Problem(message=message, position=self._position(node), hint=hint))

    def _unordered(self, node: Fold) -> None:
        self.problems.append(
            Problem(
                message="map() and filter() go over lists, and this may be an object, whose keys have no order",
                position=self._position(node.items),
                hint="go over a list, or over a path such as vars.items",
            )
        )


def _added(step: Node) -> Node:
    """Find the part of a step that extends the accumulator: filter() and map() with a condition leave it or extend it."""
    if isinstance(step, Call) and step.function == "_?_:_":
        return step.args[1]
    return step


def reach(value: object, segments: tuple[Segment, ...]) -> Iterator[tuple[object, int]]:
    """Follow a path as far as it goes: the values where it ends, or breaks off, and how many segments were followed."""
    found = [(value, 0)]
    while found:
        value, count = found.pop()
        if count == len(segments):
            yield value, count
            continue
        segment = segments[count]
        if segment is None and isinstance(value, (list, dict)):
            below = list(value) if isinstance(value, list) else list(value.values())
            found.extend((item, count + 1) for item in reversed(below))
            continue
        try:
            found.append((_part(value, segment), count + 1))
        except LookupError:
            yield value, count


def _part(value: object, segment: Segment) -> object:
    match value, segment:
        case dict(), str():
            return value[segment]
        case list(), int() if segment >= 0:
            return value[segment]
        case _:
            raise LookupError(segment)
