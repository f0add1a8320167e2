"""The tree that is read is the tree that the library checked, and other bytes are refused."""

from __future__ import annotations

import pytest
from cel_expr_python import cel

from stepgraph_server.core.expression_tree import (
    Call,
    Constant,
    Fold,
    ListOf,
    MapOf,
    Name,
    Node,
    Select,
    TreeUnreadable,
    children,
    decode,
    static_variable,
    walk,
)

ENVIRONMENT = cel.NewEnv(
    variables={"vars": cel.Type.Map(cel.Type.STRING, cel.Type.DYN), "other": cel.Type.DYN}
)


def tree_of(source: str) -> Node:
    return decode(ENVIRONMENT.compile(source).serialize()).root


def show(node: Node) -> str:
    """Write a tree in a form of its own, to compare it with what was meant."""
    match node:
        case Constant():
            return repr(node.value)
        case Name():
            return node.name
        case Select():
            return f"{show(node.operand)}{'?' if node.tests_presence else '.'}{node.field}"
        case Call():
            return f"{node.function}({', '.join(map(show, node.args))})"
        case ListOf():
            return f"[{', '.join(map(show, node.items))}]"
        case MapOf():
            return f"{node.message_name}{{{', '.join(map(show, node.items))}}}"
        case Fold():
            kind = "collect" if node.collects else "fold"
            return f"{kind} {node.variable} of {show(node.items)}: {show(node.step)}"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("null", "None"),
        ("true", "True"),
        ("-9223372036854775808", str(-(2**63))),
        ("18446744073709551615u", str(2**64 - 1)),
        ("1.5", "1.5"),
        ("'é\\n'", "'é\\n'"),
        ("b'\\x00'", "b'\\x00'"),
        ("false", "False"),
        ("0", "0"),
        ("''", "''"),
        ("vars.x", "vars.x"),
        (".vars.x.y", "vars.x.y"),
        ("has(vars.x)", "vars?x"),
        ("vars['x.y'][0]", "_[_](_[_](vars, 'x.y'), 0)"),
        ("'a' in vars", "@in('a', vars)"),
        ("'a'.startsWith('b')", "startsWith('a', 'b')"),
        ("size('a')", "size('a')"),
        ("[1, [2]]", "[1, [2]]"),
        ("[]", "[]"),
        ("{'a': 1}", "{'a', 1}"),
        ("google.protobuf.Int64Value{value: 1}", "google.protobuf.Int64Value{1}"),
        ("[1].map(x, x + 1)", "collect x of [1]: _+_(@result, [_+_(x, 1)])"),
        ("[1].all(x, x > 1)", "fold x of [1]: _&&_(@result, _>_(x, 1))"),
    ],
)
def test_the_tree_is_what_was_written(source: str, shown: str) -> None:
    assert show(tree_of(source)) == shown


def test_positions_are_characters_of_the_source() -> None:
    tree = decode(ENVIRONMENT.compile("'é' == vars.x").serialize())
    names = [node for node in walk(tree.root) if isinstance(node, Name)]
    assert [tree.positions[node.id] for node in names] == [7]


def test_deep_trees_are_read() -> None:
    # More levels of messages than a protobuf decoder takes.
    source = "[1].map(a, " * 20 + "1" + ")" * 20
    assert sum(isinstance(node, Fold) for node in walk(tree_of(source))) == 20


def test_walk_visits_every_node_once_in_order() -> None:
    root = tree_of("[1, {'a': vars.x}].exists(x, x == vars['y'])")
    visited = list(walk(root))
    assert visited[0] is root
    assert len(visited) == 1 + sum(len(children(node)) for node in visited)
    assert children(visited[1]) == (visited[2], visited[3])


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("vars.x", "x"),
        ("vars['x.y']", "x.y"),
        ("has(vars.x)", "x"),
        ("'x' in vars", "x"),
        ("vars[other]", None),
        ("other.x", None),
        ("'x' in other", None),
        ("vars", None),
    ],
)
def test_a_static_variable_is_named_in_the_source(source: str, name: str | None) -> None:
    assert static_variable(tree_of(source)) == name


def message(*fields: tuple[int, bytes | int]) -> bytes:
    """Encode fields, of lengths below 128."""
    out = bytearray()
    for number, content in fields:
        if isinstance(content, int):
            out += bytes([number << 3, content])
        else:
            out += bytes([number << 3 | 2, len(content)]) + content
    return bytes(out)


def wrapped(expression: bytes, *more: tuple[int, bytes | int]) -> bytes:
    return message((1, b"type"), (2, message((4, expression), *more)))


def test_the_smallest_tree_is_read() -> None:
    tree = decode(wrapped(message((2, 7), (3, message((2, 1))))))
    assert tree.root == Constant(id=7, value=True)
    assert tree.positions == {}


NAME = message((4, message((1, b"x"))))


def test_other_facts_about_the_expression_are_skipped() -> None:
    real = b"\x31" + bytes(8)  # field 6, eight bytes
    checked = real + message((2, b"references"), (4, NAME), (7, 1))
    assert decode(message((2, checked))).root == Name(id=0, name="x")


UNREADABLE = [
    b"",
    b"\x12",
    b"\x12\x7f",
    b"\x12\x03\x22\x7f\0",
    b"\x15\0\0\0\0",
    message((1, b"type")),
    message((1, b"type"), (2, 3)),
    message((1, b"type"), (2, message((5, b"")))),
    wrapped(message((10, b""))),
    wrapped(message((3, 1))),
    wrapped(message((3, b""))),
    wrapped(message((3, message((8, 1))))),
    wrapped(message((3, message((4, b"text"))))),
    wrapped(message((3, message((3, b"text"))))),
    wrapped(message((3, message((6, b"\xff"))))),
    wrapped(message((4, b""))),
    wrapped(message((5, message((1, NAME))))),
    wrapped(message((6, message((7, b""))))),
    wrapped(message((7, message((2, 1))))),
    wrapped(message((8, message((2, message((5, 1))))))),
    wrapped(message((9, message((1, b"x"), (8, b"y"))))),
    wrapped(message((9, message((1, b"x"))))),
    wrapped(NAME, (5, 1)),
    wrapped(NAME, (5, message((4, message((1, b"x")))))),
    b"\x12\x09\x19\0\0",
]


@pytest.mark.parametrize("serialized", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_is_not_known_is_refused(serialized: bytes) -> None:
    with pytest.raises(TreeUnreadable):
        decode(serialized)


def test_real_bytes_that_are_cut_off_never_do_worse() -> None:
    serialized = ENVIRONMENT.compile("vars.x.map(i, {'a': [b'x', 1.5, i]}) == other").serialize()
    for length in range(len(serialized)):
        with pytest.raises(TreeUnreadable):
            decode(serialized[:length])
