from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1.conversation_pb2 import TextBlock
from stepgraph.v1.graph_pb2 import StateGraph
from stepgraph.v1.value_pb2 import Value
from stepgraph_client.dumps import dump_graph, plain
from stepgraph_client.files import parse_graph
from stepgraph_client.shorthand import is_map, map_value


def test_a_graph_is_written_as_short_as_it_can_be_read() -> None:
    text = """\
name: g
nodes:
  - id: a
    llm_infer:
      system_prompt_override: |-
        Two
          lines
      tool_filter_override:
        - search
    join: all
    output: x
  - id: b
    run_requested_tools: {}
edges:
  - from: a
    to: b
    when: has_tool_calls
  - from: b
    to: a
    when:
      expression: 1 > 0
start: a
end:
  - b
time_limit: 90m
"""
    assert dump_graph(parse_graph(text).graph) == text


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "on",
        "3",
        "null",
        "~",
        "a\nb",
        "a\n",
        " a\n b ",
        "x: y",
        "# no",
        "same_version",
        "text",
        "- a",
    ]
)


@st.composite
def messages(draw, descriptor, depth: int = 4):
    """Any message of a graph: every field may be set, to anything that it takes."""
    if descriptor.full_name == "google.protobuf.Duration":
        return Duration(
            seconds=draw(st.integers(0, 10**9)), nanos=draw(st.integers(0, 999_999_999))
        )
    if descriptor.full_name == "google.protobuf.Timestamp":
        return Timestamp(
            seconds=draw(st.integers(0, 10**10)), nanos=draw(st.integers(0, 999)) * 10**6
        )
    message = descriptor._concrete_class()
    fields = [each for each in descriptor.fields if depth > 0 or not each.message_type]
    for each in (
        draw(st.lists(st.sampled_from(fields), max_size=5, unique_by=lambda f: f.name))
        if fields
        else []
    ):
        _set(draw, message, each, depth)
    return message


def _set(draw, message, each, depth) -> None:
    into = getattr(message, each.name)
    if is_map(each):
        of = map_value(each)
        for key in draw(st.lists(TEXTS, max_size=2)):
            if of.message_type:
                into[key].CopyFrom(draw(messages(of.message_type, depth - 1)))
            else:
                into[key] = draw(_scalar(of))
    elif each.is_repeated and each.message_type:
        into.extend(draw(st.lists(messages(each.message_type, depth - 1), max_size=2)))
    elif each.is_repeated:
        into.extend(draw(st.lists(_scalar(each), max_size=3)))
    elif each.message_type:
        into.SetInParent()
        into.CopyFrom(draw(messages(each.message_type, depth - 1)))
    else:
        setattr(message, each.name, draw(_scalar(each)))


def _scalar(each):
    if each.enum_type:
        return st.sampled_from([value.number for value in each.enum_type.values if value.number])
    return {
        each.CPPTYPE_STRING: st.binary(max_size=5) if each.type == each.TYPE_BYTES else TEXTS,
        each.CPPTYPE_BOOL: st.booleans(),
        each.CPPTYPE_DOUBLE: st.floats(),
        each.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
        each.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    }[each.cpp_type]


@given(messages(StateGraph.DESCRIPTOR))
def test_what_is_written_reads_back_as_the_same_graph(graph) -> None:
    again = parse_graph(dump_graph(graph)).graph
    # As text: a NaN is not equal to itself.
    assert str(again) == str(graph)


def test_a_value_is_never_mistaken_for_its_own_text() -> None:
    assert plain(Value(text="blob")) == {"text": "blob"}
    assert plain(Value()) == {}


def test_a_reducer_of_a_newer_server_keeps_its_number() -> None:
    graph = StateGraph(name="g")
    graph.reducers["x"] = 99
    assert "x: 99" in dump_graph(graph)


def test_times_and_bytes_are_written_as_they_are_read() -> None:
    assert plain(Timestamp(seconds=1769817600)) == "2026-01-31T00:00:00Z"
    assert plain(TextBlock(text="x", provider_data=b"hi")) == {"text": "x", "provider_data": "aGk="}


def test_text_that_a_block_would_change_is_written_with_escapes() -> None:
    graph = StateGraph(name="g")
    for text in ("a \nb", " a\nb", "\na", "a\x85b", "a\n\tb"):
        graph.metadata["x"] = text
        assert parse_graph(dump_graph(graph)).graph == graph
