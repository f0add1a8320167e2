from __future__ import annotations

import re
from pathlib import Path

from stepgraph.v1 import graph_pb2, interrupt_pb2, llm_pb2
from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph.v1.graph_pb2 import GraphNode, NodeAction, NodeJoin, StateGraph
from stepgraph_client import shorthand


def messages_of_graphs():
    """Every message that a graph can have inside, by its short name."""
    found: dict[str, object] = {}
    waiting = [StateGraph.DESCRIPTOR]
    while waiting:
        each = waiting.pop()
        if shorthand.short_name(each) in found:
            continue
        found[shorthand.short_name(each)] = each
        waiting += [field.message_type for field in each.fields if field.message_type]
    return found


def test_every_table_names_messages_and_fields_that_exist() -> None:
    messages = messages_of_graphs()
    for name, aliases in shorthand.ALIASES.items():
        fields = messages[name].fields_by_name
        assert set(aliases.values()) <= set(fields)
        assert not set(aliases) & set(fields), "an alias would hide a field"
    for name, field in {**shorthand.MAIN_FIELDS, **shorthand.HOISTED}.items():
        assert field in messages[name].fields_by_name


def test_no_action_bears_the_name_of_a_field_of_a_node() -> None:
    actions = set(NodeAction.DESCRIPTOR.fields_by_name)
    names = set(GraphNode.DESCRIPTOR.fields_by_name) | set(shorthand.ALIASES["GraphNode"])
    assert not actions & names


def test_every_field_that_says_that_it_holds_json_is_known() -> None:
    files = (graph_pb2, interrupt_pb2, llm_pb2)
    names = {
        field
        for file in files
        for message in file.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields_by_name
    }
    schemas = {name for name in names if name.endswith(("_schema", "json"))}
    assert schemas <= shorthand.JSON_FIELDS


def test_descriptors_are_asked_in_words() -> None:
    of = shorthand.descriptor_of
    assert shorthand.short_name(of(EdgeCondition.Custom())) == "EdgeCondition.Custom"
    assert shorthand.main_field(of(EdgeCondition.Custom())).name == "name"
    assert shorthand.main_field(of(EdgeCondition.Expression())).name == "cel"
    assert shorthand.main_field(of(GraphNode())) is None
    assert shorthand.is_union(of(EdgeCondition()))
    assert not shorthand.is_union(of(GraphNode()))
    reducers = StateGraph.DESCRIPTOR.fields_by_name["reducers"]
    assert shorthand.is_map(reducers)
    assert shorthand.map_value(reducers).enum_type.name == "Reducer"
    assert shorthand.enum_prefix(NodeJoin.DESCRIPTOR) == "NODE_JOIN_"


def test_every_short_form_is_documented() -> None:
    """People find in the documentation whatever the tables allow."""
    text = (Path(__file__).parents[3] / "client/GRAPH_FILES.md").read_text()
    for names in shorthand.ALIASES.values():
        for alias, name in names.items():
            assert re.search(rf"\| `{alias}` \| `{name}` \|", text), alias
    for message, name in shorthand.MAIN_FIELDS.items():
        assert f"| `{message}` | `{name}` |" in text
