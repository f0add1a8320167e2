"""A graph as YAML, in the short form that `files.py` reads.

Rules: what is written reads back as the same message, byte for byte of its text fields; so JSON that a field holds stays
text. Fields stand in the schema's order, with the names of the shorthand where it has them.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1.value_pb2 import Value
from stepgraph_client.durations import duration_text
from stepgraph_client.shorthand import (
    ALIASES,
    HOISTED,
    descriptor_of,
    enum_prefix,
    is_map,
    is_union,
    main_field,
    map_value,
    short_name,
)
from stepgraph_client.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph_client.yaml_text import Plain


def dump_graph(graph: StateGraph) -> str:
    """Return a graph as YAML that `parse_graph` reads back as an equal graph."""
    tree = plain(graph)
    assert isinstance(tree, dict), "a graph has more than one field"
    return yaml_text(tree)


def plain(message: Message) -> Plain:
    """Return a message in its short form, as lists and mappings."""
    if isinstance(message, Duration):
        return duration_text(message)
    if isinstance(message, Timestamp):
        return message.ToJsonString()
    descriptor = descriptor_of(message)
    entries = _entries(message, descriptor)
    if not entries:
        return {}
    if isinstance(message, Value):
        # A lone text would be a value of that text.
        return entries
    if is_union(descriptor) and list(entries.values()) == [{}]:
        return next(iter(entries))
    # A text would be taken for the name of a variant where it is one of them.
    main = main_field(descriptor)
    if main is not None and list(entries) == [main.name] and not _misread(entries, descriptor):
        return entries[main.name]
    return entries


def _misread(entries: dict[str, Plain], descriptor: Descriptor) -> bool:
    value = next(iter(entries.values()))
    return isinstance(value, dict) or (
        isinstance(value, str) and value in descriptor.fields_by_name
    )


def _entries(message: Message, descriptor: Descriptor) -> dict[str, Plain]:
    short = {name: alias for alias, name in ALIASES.get(short_name(descriptor), {}).items()}
    hoisted = HOISTED.get(short_name(descriptor))
    entries: dict[str, Plain] = {}
    for each, value in message.ListFields():
        shown = _field(each, value)
        if each.name == hoisted and isinstance(shown, dict) and shown:
            entries |= shown
        elif each.name == hoisted and isinstance(shown, str):
            # A variant without anything in it, such as `run_requested_tools`.
            entries[shown] = {}
        else:
            entries[short.get(each.name, each.name)] = shown
    return entries


def _field(each: FieldDescriptor, value: object) -> Plain:
    if is_map(each):
        pairs = cast("Mapping[str, object]", value)
        of = map_value(each)
        return {key: _one(of, pairs[key]) for key in sorted(pairs)}
    if each.is_repeated:
        return [_one(each, item) for item in cast("Sequence[object]", value)]
    return _one(each, value)


def _one(each: FieldDescriptor, value: object) -> Plain:
    match each.cpp_type:
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return plain(cast("Message", value))
        case FieldDescriptor.CPPTYPE_ENUM:
            return _enum_name(each, cast("int", value))
        case FieldDescriptor.CPPTYPE_STRING if each.type == FieldDescriptor.TYPE_BYTES:
            return base64.b64encode(cast("bytes", value)).decode()
        case FieldDescriptor.CPPTYPE_STRING:
            return cast("str", value)
        case _:
            return cast("int | float | bool", value)


def _enum_name(each: FieldDescriptor, number: int) -> Plain:
    assert each.enum_type is not None, "it is an enum"
    known = each.enum_type.values_by_number.get(number)
    # A newer server may have sent a value that this version has no name for; it keeps its number.
    return known.name.removeprefix(enum_prefix(each.enum_type)).lower() if known else number
