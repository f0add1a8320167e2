from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1.conversation_pb2 import TextBlock
from stepgraph.v1.graph_pb2 import GraphNode, NodeAction, StateGraph
from stepgraph.v1.state_pb2 import GraphState
from stepgraph_client.documents import read_document
from stepgraph_client.scalars import UnfitError, converted, found, json_of, wanted_of


def part(text: str):
    return read_document(text, is_json=False)


def of(message, name: str):
    return message.DESCRIPTOR.fields_by_name[name]


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        (of(GraphNode, "id"), "think", "think"),
        (of(GraphNode, "id"), "'3'", "3"),
        (of(GraphNode, "interrupt"), "true", True),
        (of(GraphNode, "interrupt"), "False", False),
        (of(GraphNode, "join"), "all", 2),
        (of(GraphNode, "join"), "NODE_JOIN_ANY", 1),
        (of(StateGraph, "max_iterations"), "50", 50),
        (of(StateGraph, "max_iterations"), "0x10", 16),
        (of(StateGraph, "max_iterations"), "010", 10),
        (of(NodeAction.LlmInfer, "temperature"), "1", 1.0),
        (of(NodeAction.LlmInfer, "temperature"), "0.5", 0.5),
        (of(TextBlock, "provider_data"), "aGk=", b"hi"),
        (of(GraphState, "token_budget_remaining"), "'18446744073709551615'", 2**64 - 1),
    ],
)
def test_what_fits_is_taken(field, text, value) -> None:
    assert converted(field, part(text)) == value


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        (of(GraphNode, "id"), "3", 'expected text, found an integer (3); write "3" in quotes'),
        (of(GraphNode, "id"), "true", 'expected text, found true; write "true" in quotes'),
        (of(GraphNode, "id"), "null", 'found nothing; leave the field out, or write ""'),
        (of(GraphNode, "interrupt"), "yes", "expected true or false, found the text 'yes'"),
        (of(GraphNode, "join"), "alll", "did you mean 'all'?"),
        (of(GraphNode, "join"), "3", "expected one of any, all, found an integer (3)"),
        (of(GraphNode, "join"), "unspecified", "expected one of any, all"),
        (of(StateGraph, "max_iterations"), "-1", "from 0 to 4294967295, found -1"),
        (of(StateGraph, "max_iterations"), "1.5", "expected an integer, found a number (1.5)"),
        (of(StateGraph, "max_iterations"), "'5'", "expected an integer, found the text '5'"),
        (of(NodeAction.LlmInfer, "temperature"), "hot", "expected a number, found the text 'hot'"),
        (of(TextBlock, "provider_data"), "'?'", "expected bytes in base64"),
    ],
)
def test_what_does_not_fit_says_what_would(field, text, message) -> None:
    with pytest.raises(UnfitError) as caught:
        converted(field, part(text))
    assert message in str(caught.value)


def test_long_texts_are_cut_in_messages() -> None:
    assert found(part("x" * 100)) == f"the text '{'x' * 40}…'"
    assert (found(part("[]")), found(part("{}"))) == ("a list", "a mapping")


def test_words_for_what_a_field_takes() -> None:
    assert wanted_of(of(GraphNode, "id")) == "text"
    assert wanted_of(of(GraphNode, "join")) == "a name"


@pytest.mark.parametrize(
    ("text", "json_text"),
    [
        ("{a: 9007199254740993, b: 1.0}", '{"a": 9007199254740993, "b": 1.0}'),
        ("[x, 'y', null, True, 0x10, 1e3]", '["x", "y", null, true, 16, 1e3]'),
        ('"ü\\n"', '"ü\\n"'),
        ("{}", "{}"),
    ],
)
def test_yaml_becomes_json_with_every_number_as_it_was_written(text, json_text) -> None:
    assert json_of(part(text)) == json_text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".nan", "is not a number of JSON"),
        (".5", "is not a number of JSON"),
        ("{a: 1, a: 2}", "twice"),
    ],
)
def test_what_json_does_not_have_is_refused(text, message) -> None:
    with pytest.raises(UnfitError, match=message):
        json_of(part(text))


@given(st.integers(-(2**70), 2**70))
def test_integers_of_any_size_stay_as_they_are(number) -> None:
    assert json_of(part(f"[{number}]")) == f"[{number}]"
