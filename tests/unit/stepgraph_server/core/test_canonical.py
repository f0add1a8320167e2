"""Digests depend on what a message says, and on nothing else."""

from __future__ import annotations

import hashlib
import struct

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from stepgraph_server.core.canonical import (
    MAX_MESSAGE_DEPTH,
    CanonicalError,
    digest,
    digest_bytes,
    digest_text,
)

FIELDS = [
    ("flag", 1, "TYPE_BOOL", ""),
    ("number", 2, "TYPE_INT64", ""),
    ("text", 3, "TYPE_STRING", ""),
    ("data", 4, "TYPE_BYTES", ""),
    ("real", 5, "TYPE_DOUBLE", ""),
    ("short_real", 6, "TYPE_FLOAT", ""),
    ("kind", 7, "TYPE_ENUM", ".test.Kind"),
    ("child", 8, "TYPE_MESSAGE", ".test.All"),
    ("unsigned", 9, "TYPE_FIXED64", ""),
    ("texts", 10, "TYPE_STRING", "*"),
    ("children", 11, "TYPE_MESSAGE", ".test.All*"),
    ("by_name", 12, "TYPE_MESSAGE", ".test.All.ByNameEntry*"),
    ("by_number", 13, "TYPE_MESSAGE", ".test.All.ByNumberEntry*"),
    ("maybe", 14, "TYPE_STRING", "?"),
    ("numbers", 15, "TYPE_INT32", "*"),
]


def add_field(message, name: str, number: int, kind: str, type_name: str) -> None:
    field = message.field.add(name=name, number=number)
    field.type = FieldDescriptorProto.Type.Value(kind)
    repeated = type_name.endswith("*")
    field.label = (
        FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
    )
    if type_name == "?":
        field.proto3_optional = True
        field.oneof_index = 0
        message.oneof_decl.add(name="_" + name)
    elif type_name.strip("*"):
        field.type_name = type_name.strip("*")


def make_types(fields: list[tuple[str, int, str, str]], name: str = "All"):
    """Make a message type in a pool of its own, so that two versions of it can exist."""
    file = FileDescriptorProto(name="test.proto", package="test", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    for number, value in enumerate(("KIND_UNSPECIFIED", "KIND_ONE", "KIND_TWO")):
        kind.value.add(name=value, number=number)
    message = file.message_type.add(name=name)
    for field in fields:
        add_field(message, *field)
    for entry_name, key in (("ByNameEntry", "TYPE_STRING"), ("ByNumberEntry", "TYPE_INT32")):
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        add_field(entry, "key", 1, key, "")
        add_field(entry, "value", 2, "TYPE_MESSAGE", f".test.{name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"test.{name}"))


All = make_types(FIELDS)


def form_digest(form: bytes) -> str:
    return "sha256:" + hashlib.sha256(b"test.All" + form).hexdigest()


CASES = [
    ({}, b"{}"),
    ({"flag": True}, b"{1:b1}"),
    ({"flag": False}, b"{}"),
    ({"number": -(2**63)}, b"{2:i-9223372036854775808;}"),
    ({"text": "é"}, b"{3:s2:\xc3\xa9}"),
    ({"data": b"\0}"}, b"{4:y2:\0}}"),
    ({"real": 0.1}, b"{5:d" + struct.pack(">d", 0.1) + b"}"),
    ({"real": -0.0}, b"{5:d" + struct.pack(">d", -0.0) + b"}"),
    ({"real": float("nan")}, b"{5:d\x7f\xf8\0\0\0\0\0\0}"),
    ({"short_real": 0.5}, b"{6:d" + struct.pack(">d", 0.5) + b"}"),
    ({"kind": 2}, b"{7:i2;}"),
    ({"kind": 99}, b"{7:i99;}"),
    ({"child": {}}, b"{8:{}}"),
    ({"unsigned": 2**64 - 1}, b"{9:i18446744073709551615;}"),
    ({"texts": ["", "a"]}, b"{10:[s0:s1:a]}"),
    ({"children": [{}, {"flag": True}]}, b"{11:[{}{1:b1}]}"),
    ({"by_name": {"b": {}, "a": {"flag": True}}}, b"{12:<s1:a{1:b1}s1:b{}>}"),
    ({"by_number": {2: {}, -1: {}}}, b"{13:<i-1;{}i2;{}>}"),
    ({"maybe": ""}, b"{14:s0:}"),
    ({"numbers": [0, 1]}, b"{15:[i0;i1;]}"),
    ({"numbers": [], "text": "x", "flag": True}, b"{1:b1 3:s1:x}".replace(b" ", b"")),
]


@pytest.mark.parametrize(("fields", "form"), CASES, ids=[str(fields) for fields, _ in CASES])
def test_the_form_is_what_it_was(fields: dict[str, object], form: bytes) -> None:
    # These bytes are a promise: digests are stored.
    assert digest(All(**fields)) == form_digest(form)


def test_different_messages_have_different_digests() -> None:
    digests = [digest(All(**fields)) for fields, _ in CASES]
    assert len(set(digests)) == len({form for _, form in CASES})


def test_presence_counts() -> None:
    assert digest(All()) != digest(All(maybe="")) != digest(All(child=All()))


def test_the_order_in_which_a_map_was_filled_does_not_count() -> None:
    names = [f"k{n}" for n in range(50)]
    there, back = All(), All()
    for name in names:
        there.by_name[name].number = len(name)
    for name in reversed(names):
        back.by_name[name].number = len(name)
    assert digest(there) == digest(back)


def test_names_of_fields_and_their_order_in_the_schema_do_not_count() -> None:
    renamed = make_types([("x_" + name, *rest) for name, *rest in reversed(FIELDS[:5])])
    fields = {"flag": True, "number": 7, "text": "t", "data": b"d", "real": 1.5}
    assert digest(renamed(**{"x_" + k: v for k, v in fields.items()})) == digest(All(**fields))


def test_the_type_counts() -> None:
    other = make_types(FIELDS[:1], name="Other")
    assert digest(other(flag=True)) != digest(All(flag=True))


def test_what_went_over_the_wire_has_the_same_digest() -> None:
    message = All(text="x", by_name={"a": All(number=1), "b": All(real=2)}, numbers=[1, 2])
    assert digest(All.FromString(message.SerializeToString())) == digest(message)


@pytest.mark.parametrize("where", ["outside", "child", "children", "by_name"])
def test_unknown_fields_are_refused(where: str) -> None:
    newer = make_types([*FIELDS, ("news", 99, "TYPE_STRING", "")])
    inner = newer(news="x")
    message = {
        "outside": inner,
        "child": newer(child=inner),
        "children": newer(children=[inner]),
        "by_name": newer(by_name={"a": inner}),
    }[where]
    with pytest.raises(CanonicalError, match="unknown fields") as caught:
        digest(All.FromString(message.SerializeToString()))
    assert caught.value.message_type == "test.All"


@pytest.mark.parametrize(("levels", "fits"), [(50, True), (51, False), (2_000, False)])
def test_depth_is_bounded(levels: int, fits: bool) -> None:
    # Built in place: the library refuses to copy what is this deep.
    message = innermost = struct_pb2.Value()
    for _ in range(levels):
        innermost = innermost.list_value.values.add()
    if fits:
        assert digest(message)
        return
    with pytest.raises(CanonicalError, match=f"deeper than {MAX_MESSAGE_DEPTH}"):
        digest(message)


def test_extensions_are_refused() -> None:
    file = FileDescriptorProto(name="ext.proto", package="test", syntax="proto2")
    file.dependency.append("google/protobuf/descriptor.proto")
    extension = file.extension.add(
        name="note", number=50_000, extendee=".google.protobuf.FieldOptions"
    )
    extension.type = FieldDescriptorProto.TYPE_STRING
    extension.label = FieldDescriptorProto.LABEL_OPTIONAL
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    options = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("google.protobuf.FieldOptions")
    )()
    message_factory.GetMessageClassesForFiles(["ext.proto"], pool)
    options.Extensions[pool.FindExtensionByName("test.note")] = "x"
    with pytest.raises(CanonicalError, match=r"the extension test\.note"):
        digest(options)


def test_texts_and_bytes_are_digested_as_they_are() -> None:
    assert digest_text("é") == digest_bytes(b"\xc3\xa9") == digest_bytes(memoryview(b"\xc3\xa9"))
    assert digest_bytes(b"") == "sha256:" + hashlib.sha256(b"").hexdigest()
