"""What may be written shorter than the schema, and how the schema's descriptors are asked.

Rules: these tables are the only place where a file's form differs from the schema; the reader (`shapes.py`) and the
writer (`dumps.py`) both follow them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
    from google.protobuf.message import Message

_PACKAGE = "stepgraph.v1."

#: Other names of fields, by message.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "StateGraph": {"start": "entry_point", "end": "terminal_nodes"},
    "GraphNode": {"output": "output_variable", "question": "interrupt_options"},
    "GraphEdge": {"from": "source", "to": "target", "when": "condition"},
}
#: Fields whose variants may be written straight into the message that has the field.
HOISTED: Mapping[str, str] = {"GraphNode": "action"}
#: The field that is meant where a message is written as a scalar or a list. A message with one field needs no entry.
MAIN_FIELDS: Mapping[str, str] = {
    "ToolFilter": "allow",
    "InterruptOption": "id",
    "GraphRef": "reference",
    "EdgeCondition.Custom": "name",
    "NodeAction.HumanApproval": "description",
    "NodeAction.Sleep": "duration",
    "NodeAction.ToolCall": "tool_name",
    "NodeAction.Delegate": "agent_kind",
    "NodeAction.Step": "program",
    "NodeAction.WaitSignal": "name",
    "NodeAction.Subgraph": "graph",
}
#: Text fields that hold JSON: what they hold may be written as YAML.
JSON_FIELDS = frozenset(
    {
        "answer_schema",
        "args_template",
        "input_schema",
        "input_template",
        "json",
        "json_schema",
        "output_schema",
        "provider_options",
        "tool_args",
    }
)


def descriptor_of(message: Message) -> Descriptor:
    """Return what a message is made of."""
    # The stubs also name the C twin of Descriptor, which has the same interface and no type of its own.
    return cast("Descriptor", message.DESCRIPTOR)


def short_name(descriptor: Descriptor) -> str:
    """Return a message's name below our package, such as "EdgeCondition.Custom"."""
    return descriptor.full_name.removeprefix(_PACKAGE)


def main_field(descriptor: Descriptor) -> FieldDescriptor | None:
    """Return the field that is meant where only a scalar or a list is written; None if there is none."""
    name = MAIN_FIELDS.get(short_name(descriptor))
    if name is not None:
        return descriptor.fields_by_name[name]
    return descriptor.fields[0] if len(descriptor.fields) == 1 else None


def is_union(descriptor: Descriptor) -> bool:
    """Say whether a message is nothing but a choice of messages, all but the main field."""
    return len(descriptor.oneofs) == 1 and all(
        each.containing_oneof is not None for each in descriptor.fields
    )


def is_map(each: FieldDescriptor) -> bool:
    """Say whether a field is a map."""
    return each.message_type is not None and each.message_type.GetOptions().map_entry


def map_value(each: FieldDescriptor) -> FieldDescriptor:
    """Return what the values of a map field are."""
    assert each.message_type is not None, "a map is a list of entries"
    return each.message_type.fields_by_name["value"]


def enum_prefix(descriptor: EnumDescriptor) -> str:
    """Return what all values of an enum begin with, such as "NODE_JOIN_"."""
    return descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
