"""From a tree of text to a message of the schema, and from a message to a place in the text.

Rules: everything follows the schema's descriptors, so a field that is added to the schema can be written at once; what
is shorter than the schema stands in `shorthand.py`. Problems are collected, not raised: whoever mends a file wants to see
all of them.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1.value_pb2 import Value
from stepgraph_client.documents import Entries, Items, Kind, Mark, Part, Scalar
from stepgraph_client.durations import DurationTextError, to_duration
from stepgraph_client.scalars import (
    Plain,
    UnfitError,
    converted,
    found,
    json_of,
    listed,
    wanted_of,
)
from stepgraph_client.shorthand import (
    ALIASES,
    HOISTED,
    JSON_FIELDS,
    descriptor_of,
    is_map,
    is_union,
    main_field,
    map_value,
    short_name,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, MutableSequence

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something in a text that does not fit the schema: where in the text, where in the message, and what."""

    mark: Mark
    path: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a tree gave: troubles (none: the message is whole), and the place of every part by its path."""

    troubles: list[Trouble] = field(default_factory=list)
    places: dict[str, Mark] = field(default_factory=dict)


def fill(message: Message, part: Part) -> Shape:
    """Fill a message from a tree; look at `troubles` before the message is used."""
    filler = _Filler()
    filler.message(message, part, "")
    return filler.shape


class _Filler:
    def __init__(self) -> None:
        self.shape = Shape()

    # Messages ---------------------------------------------------------------------------------------------------

    def message(self, message: Message, part: Part, path: str) -> None:
        self.shape.places[path] = part.mark
        descriptor = descriptor_of(message)
        if isinstance(message, Duration | Timestamp):
            self._time(message, part, path)
        elif isinstance(part, Entries):
            self._entries(message, part, path)
        elif isinstance(part, Scalar) and part.kind is Kind.NULL:
            message.SetInParent()
        elif isinstance(message, Value):
            self._value(message, part)
        elif isinstance(part, Scalar) and self._is_variant(descriptor, part):
            variant = descriptor.fields_by_name[part.text]
            getattr(message, variant.name).SetInParent()
        elif (main := main_field(descriptor)) is not None:
            self._field(message, main, part, _below(path, main.name))
        else:
            hint = _condition_hint(descriptor, part)
            text = f"expected {_described(descriptor)}, found {found(part)}{hint}"
            self._report(part, path, text)

    def _is_variant(self, descriptor: Descriptor, part: Scalar) -> bool:
        found = descriptor.fields_by_name.get(part.text)
        return is_union(descriptor) and found is not None and found.message_type is not None

    def _entries(self, message: Message, part: Entries, path: str) -> None:
        message.SetInParent()
        names = _names(descriptor_of(message))
        first: dict[str, Scalar] = {}
        for key, value in part.entries:
            target = names.get(key.text)
            if target is None:
                self._unknown(key, path, names, descriptor_of(message))
                continue
            # A second variant of a choice clashes with the first as a second value of a field does.
            slot = target.slot
            if slot in first:
                self._clash(key, first[slot], path)
                continue
            first[slot] = key
            owner, owner_path = message, path
            if target.holder:
                owner = getattr(message, target.holder)
                owner_path = _below(path, target.holder)
                self.shape.places.setdefault(owner_path, key.mark)
            field_path = _below(owner_path, target.field.name)
            self.shape.places[field_path] = key.mark
            self._field(owner, target.field, value, field_path)
            # The key is what people look for, not the value behind it.
            self.shape.places[field_path] = key.mark

    def _unknown(
        self, key: Scalar, path: str, names: Mapping[str, _Target], descriptor: Descriptor
    ) -> None:
        close = difflib.get_close_matches(key.text, names, n=1, cutoff=0.6)
        hint = f"did you mean {close[0]!r}?" if close else f"there are {listed(names)}"
        self._report(key, path, f"there is no field {key.text!r} in {_title(descriptor)}; {hint}")

    def _clash(self, key: Scalar, first: Scalar, path: str) -> None:
        where = f"line {first.mark.line}"
        if key.text == first.text:
            text = f"{key.text!r} is there twice, first in {where}; keep one"
        else:
            text = f"{key.text!r} can't stand beside {first.text!r} of {where}; keep one of them"
        self._report(key, path, text)

    # Fields -----------------------------------------------------------------------------------------------------

    def _field(self, owner: Message, each: FieldDescriptor, part: Part, path: str) -> None:
        if is_map(each):
            self._map(getattr(owner, each.name), each, part, path)
        elif each.is_repeated:
            self._list(getattr(owner, each.name), each, part, path)
        elif each.message_type is not None:
            self.message(getattr(owner, each.name), part, path)
        else:
            plain = self._plain(each, part, path)
            if plain is not None:
                setattr(owner, each.name, plain)

    def _list(
        self,
        into: MutableSequence[Message] | MutableSequence[Plain],
        each: FieldDescriptor,
        part: Part,
        path: str,
    ) -> None:
        if isinstance(part, Scalar) and part.kind is Kind.NULL:
            return
        # One name where a list of names may stand.
        lone = isinstance(part, Scalar) and each.message_type is None
        if not isinstance(part, Items) and not lone:
            self._report(part, path, f"expected a list, found {found(part)}")
            return
        for index, item in enumerate(part.items if isinstance(part, Items) else (part,)):
            item_path = f"{path}[{index}]"
            if each.message_type is not None:
                self.message(into.add(), item, item_path)  # type: ignore[union-attr]  # protobuf's own list
                continue
            self.shape.places[item_path] = item.mark
            plain = self._plain(each, item, item_path)
            if plain is not None:
                into.append(plain)  # type: ignore[arg-type]  # the list is of what its field says

    def _map(
        self, into: MutableMapping[str, Plain], each: FieldDescriptor, part: Part, path: str
    ) -> None:
        if isinstance(part, Scalar) and part.kind is Kind.NULL:
            return
        if not isinstance(part, Entries):
            self._report(part, path, f"expected a mapping of names, found {found(part)}")
            return
        value_field = map_value(each)
        first: dict[str, Scalar] = {}
        for key, value in part.entries:
            if key.text in first:
                self._clash(key, first[key.text], path)
                continue
            first[key.text] = key
            entry_path = map_path(path, key.text)
            if value_field.message_type is not None:
                # Reading a missing key of a map of messages makes the entry.
                self.message(into[key.text], value, entry_path)  # type: ignore[arg-type]
            else:
                plain = self._plain(value_field, value, entry_path)
                if plain is not None:
                    into[key.text] = plain
            self.shape.places[entry_path] = key.mark

    # Scalars ----------------------------------------------------------------------------------------------------

    def _plain(self, each: FieldDescriptor, part: Part, path: str) -> Plain | None:
        """Return what a scalar field gets; None if it was reported or is empty."""
        if each.name in JSON_FIELDS and each.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return self._json_field(part, path)
        if not isinstance(part, Scalar):
            self._report(part, path, f"expected {wanted_of(each)}, found {found(part)}")
            return None
        try:
            return converted(each, part)
        except UnfitError as unfit:
            self._report(part, path, str(unfit))
            return None

    def _json_field(self, part: Part, path: str) -> str | None:
        if isinstance(part, Scalar) and part.kind is Kind.TEXT:
            return part.text
        try:
            return json_of(part)
        except UnfitError as unfit:
            self._report(part, path, str(unfit))
            return None

    def _value(self, value: Value, part: Part) -> None:
        if isinstance(part, Scalar) and part.kind is Kind.TEXT:
            value.text = part.text
            return
        try:
            value.json = json_of(part)
        except UnfitError as unfit:
            self._report(part, "", str(unfit))

    def _time(self, message: Duration | Timestamp, part: Part, path: str) -> None:
        wanted = (
            'a duration such as "30s", "1.5h" or "1h30m"'
            if isinstance(message, Duration)
            else 'a time such as "2026-01-31T12:00:00Z"'
        )
        if not isinstance(part, Scalar) or part.kind is not Kind.TEXT:
            self._report(part, path, f"expected {wanted}, found {found(part)}")
            return
        try:
            if isinstance(message, Duration):
                message.CopyFrom(to_duration(part.text))
            else:
                message.FromJsonString(part.text)
        except (DurationTextError, ValueError):
            self._report(part, path, f"expected {wanted}, found {found(part)}")

    def _report(self, part: Part, path: str, message: str) -> None:
        self.shape.troubles.append(Trouble(mark=part.mark, path=path, message=message))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """What a key means: a field, the field that holds its message (if it was hoisted), and what it excludes."""

    field: FieldDescriptor
    holder: str
    slot: str


_NAMES: dict[str, dict[str, _Target]] = {}


def _names(descriptor: Descriptor) -> dict[str, _Target]:
    """Return what each key of a mapping means. Made once per message: a graph has thousands of nodes."""
    known = _NAMES.get(descriptor.full_name)
    if known is not None:
        return known
    names: dict[str, _Target] = {}
    for each in descriptor.fields:
        target = _Target(field=each, holder="", slot=_slot(each))
        names[each.name] = names[each.json_name] = target
    for alias, name in ALIASES.get(short_name(descriptor), {}).items():
        names[alias] = names[name]
    holder = HOISTED.get(short_name(descriptor))
    if holder is not None:
        held = descriptor.fields_by_name[holder].message_type
        assert held is not None, "only messages are hoisted"
        for each in held.fields:
            target = _Target(field=each, holder=holder, slot=holder)
            names[each.name] = names[each.json_name] = target
    _NAMES[descriptor.full_name] = names
    return names


def _slot(each: FieldDescriptor) -> str:
    choice = each.containing_oneof
    # A presence bit of `optional` looks like a choice of one.
    if choice is None or len(choice.fields) == 1:
        return each.name
    return f"oneof {choice.name}"


def _described(descriptor: Descriptor) -> str:
    if is_union(descriptor):
        return f"one of {listed(each.name for each in descriptor.fields)}"
    return f"a mapping with fields such as {listed([each.name for each in descriptor.fields][:4])}"


def _condition_hint(descriptor: Descriptor, part: Part) -> str:
    """Return what a condition that is only a text was probably meant as."""
    if short_name(descriptor) != "EdgeCondition" or not isinstance(part, Scalar):
        return ""
    close = difflib.get_close_matches(part.text, descriptor.fields_by_name, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {close[0]!r}?"
    if part.text.isidentifier():
        return f"; if an executor decides it, write {{custom: {part.text}}}"
    return f"; if it is an expression, write {{expression: {part.text!r}}}"


def _title(descriptor: Descriptor) -> str:
    """Return what people call a message: "node", "edge", "llm_infer"."""
    name = descriptor.name.removeprefix("Graph").removeprefix("State")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name or descriptor.name).lower()


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def map_path(path: str, key: str) -> str:
    """Return the path of a map's entry, as problems of the server name it."""
    return f'{path}["{key}"]'
