from __future__ import annotations

import pytest

from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph.v1.graph_pb2 import GraphEdge, GraphNode, GraphRef, StateGraph
from stepgraph.v1.interrupt_pb2 import InterruptOptions
from stepgraph.v1.value_pb2 import Value
from stepgraph_client import conditions
from stepgraph_client.documents import read_document
from stepgraph_client.shapes import fill


def filled(message, text: str):
    shape = fill(message, read_document(text, is_json=False))
    assert not shape.troubles, shape.troubles
    return message


def troubles(message, text: str) -> list[str]:
    shape = fill(message, read_document(text, is_json=False))
    return [
        f"{each.mark.line}:{each.mark.column} {each.path}: {each.message}"
        for each in shape.troubles
    ]


def test_names_may_be_snake_case_camel_case_or_aliases() -> None:
    long = filled(GraphEdge(), "{source: a, target: b, max_traversals: 3}")
    assert filled(GraphEdge(), "{from: a, to: b, maxTraversals: 3}") == long


def test_an_action_may_stand_straight_in_its_node() -> None:
    long = filled(GraphNode(), "{id: a, action: {tool_call: {tool_name: search}}}")
    assert filled(GraphNode(), "{id: a, tool_call: {tool_name: search}}") == long
    assert filled(GraphNode(), "{id: a, toolCall: search}") == long


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("has_tool_calls", conditions.has_tool_calls()),
        ("has_tool_calls: {}", conditions.has_tool_calls()),
        ("has_tool_calls:", conditions.has_tool_calls()),
        ("expression: 1 > 0", conditions.expression("1 > 0")),
        ("expression: {cel: 1 > 0}", conditions.expression("1 > 0")),
        ("iteration_exceeds: 3", conditions.iteration_exceeds(3)),
        ("error_occurred: [A, B]", conditions.error_occurred("A", "B")),
        ("error_occurred: A", conditions.error_occurred("A")),
        ("error_occurred", conditions.error_occurred()),
        ("custom: enough", conditions.custom("enough")),
        ("state_equals: {variable: x, value: '3'}", conditions.state_equals("x", "3")),
    ],
)
def test_conditions_may_be_as_short_as_they_are_clear(text, condition) -> None:
    assert filled(EdgeCondition(), text) == condition


def test_a_graph_may_be_named_by_its_reference_alone() -> None:
    assert filled(GraphRef(), "other@3").reference == "other@3"
    assert filled(GraphRef(), "same_version").WhichOneof("kind") == "same_version"


def test_values_are_text_or_json_or_written_out() -> None:
    assert filled(Value(), "hello").text == "hello"
    assert filled(Value(), "3").json == "3"
    assert filled(Value(), "[1, x]").json == '[1, "x"]'
    assert filled(Value(), "{json: {a: 1}}").json == '{"a": 1}'
    assert filled(Value(), "{secret: {name: key}}").secret.name == "key"
    assert "is not a number of JSON" in troubles(Value(), ".nan")[0]


def test_fields_that_hold_json_text_take_yaml_or_text() -> None:
    assert (
        filled(InterruptOptions(), "answer_schema: {type: object}").answer_schema
        == '{"type": "object"}'
    )
    assert filled(InterruptOptions(), "answer_schema: '{}'").answer_schema == "{}"
    assert "twice" in troubles(InterruptOptions(), "answer_schema: {a: 1, a: 2}")[0]


def test_times_are_read_as_people_write_them() -> None:
    node = filled(GraphNode(), "{id: a, sleep: 10m, limits: {run: 1h30m}}")
    assert node.action.sleep.duration.seconds == 600
    assert node.limits.run.seconds == 5400
    node = filled(GraphNode(), "{id: a, sleep: {until: 2026-01-31T00:00:00Z}}")
    assert node.action.sleep.until.seconds == 1769817600


def test_maps_and_lists_may_be_left_empty() -> None:
    graph = filled(StateGraph(), "{name: g, nodes: , metadata: , reducers: {a: append}}")
    assert (len(graph.nodes), graph.reducers["a"]) == (0, 3)


def test_a_map_of_messages_has_an_entry_for_each_name() -> None:
    graph = filled(StateGraph(), "paradigms: {a: {system_prompt: x}, b: {}}")
    assert sorted(graph.paradigms) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("{nam: g}", "1:2 : there is no field 'nam' in graph; did you mean 'name'?"),
        ("name: g\nname: h", "2:1 : 'name' is there twice, first in line 1; keep one"),
        (
            "start: a\nentry_point: b",
            "2:1 : 'entry_point' can't stand beside 'start' of line 1; keep one of them",
        ),
        ("nodes: 3", "1:8 nodes: expected a list, found an integer (3)"),
        ("metadata: [a]", "1:11 metadata: expected a mapping of names, found a list"),
        ("metadata: {a: b, a: c}", "1:18 metadata: 'a' is there twice, first in line 1; keep one"),
        (
            "metadata: {a: 1}",
            '1:15 metadata["a"]: expected text, found an integer (1); write "1" in quotes',
        ),
        ("name: [a]", "1:7 name: expected text, found a list"),
        (
            "time_limit: 3",
            '1:13 time_limit: expected a duration such as "30s", "1.5h" or "1h30m", found an integer (3)',
        ),
        (
            "time_limit: soon",
            '1:13 time_limit: expected a duration such as "30s", "1.5h" or "1h30m", found the text \'soon\'',
        ),
        (
            "nodes: [3]",
            "1:9 nodes[0]: expected a mapping with fields such as id, action, interrupt, metadata, found an integer (3)",
        ),
    ],
)
def test_each_trouble_has_its_place_its_path_and_a_way_out(text, trouble) -> None:
    assert troubles(StateGraph(), text) == [trouble]


def test_two_variants_of_one_choice_clash() -> None:
    text = "id: a\nassign: {}\nsleep: 3s"
    assert troubles(GraphNode(), text) == [
        "3:1 : 'sleep' can't stand beside 'assign' of line 2; keep one of them"
    ]
    text = "{has_tool_calls: {}, always: {}}"
    assert "can't stand beside 'has_tool_calls'" in troubles(EdgeCondition(), text)[0]


def test_a_variant_that_does_not_exist_is_told_with_those_that_do() -> None:
    assert (
        "there is no field 'has_tool_call' in edge_condition; did you mean 'has_tool_calls'?"
        in (troubles(EdgeCondition(), "has_tool_call: {}")[0])
    )
    assert (
        "expected one of has_tool_calls, is_final_answer"
        in troubles(EdgeCondition(), "sometimes")[0]
    )


def test_a_point_in_time_says_what_it_looks_like() -> None:
    assert "expected a time such as" in troubles(GraphNode(), "sleep: {until: tomorrow}")[0]


def test_all_troubles_are_told_at_once() -> None:
    assert len(troubles(StateGraph(), "{a: 1, b: 2, name: 3, nodes: 4, time_limit: 5}")) == 5


def test_every_part_is_found_again_by_its_path() -> None:
    text = "name: g\nnodes:\n  - id: a\n    llm_infer:\n      model: m\nreducers: {x.y: append}\n"
    places = fill(StateGraph(), read_document(text, is_json=False)).places
    assert {path: (mark.line, mark.column) for path, mark in places.items()} == {
        "": (1, 1),
        "name": (1, 1),
        "nodes": (2, 1),
        "nodes[0]": (3, 5),
        "nodes[0].id": (3, 5),
        "nodes[0].action": (4, 5),
        "nodes[0].action.llm_infer": (4, 5),
        "nodes[0].action.llm_infer.model": (5, 7),
        "reducers": (6, 1),
        'reducers["x.y"]': (6, 12),
    }


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("is_warm", "write {custom: is_warm}"),
        ("is_final_anser", "did you mean 'is_final_answer'?"),
        ("vars.x > 3", "write {expression: 'vars.x > 3'}"),
    ],
)
def test_a_condition_that_is_only_a_text_is_told_how_it_may_be_written(written, hint) -> None:
    """The name of an executor's condition, a typo and an expression are told apart."""
    (told,) = troubles(GraphEdge(), f"{{from: a, to: b, when: {written}}}")
    assert told.endswith(hint)
