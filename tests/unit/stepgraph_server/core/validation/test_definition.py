"""The whole check of a graph."""

from __future__ import annotations

import time

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph.v1 import graph_pb2
from stepgraph.v1.graph_pb2 import StateGraph
from stepgraph_server.core.errors import GraphInvalid
from stepgraph_server.core.graph import compile_graph
from stepgraph_server.core.validation import check
from stepgraph_server.core.validation.actions import MAX_EXPRESSIONS
from stepgraph_server.core.validation.definition import MAX_EDGES, MAX_NODES
from stepgraph_server.core.validation.structure import MAX_CONDITIONAL_EDGES
from tests.support.graphs import DEFAULTS, chain, condition, graph, problems, warnings


def broken() -> StateGraph:
    """Build a graph with about everything wrong that people get wrong."""
    nodes = {
        "think": {"action": {"llm_infer": {"prompt_template": "{{question"}}},
        "check": {"action": {"condition_check": {"condition": "iterations >"}}},
        "work": {"action": {"tool_call": {"tool_name": "search", "args_template": "{"}}},
        "island": {},
        "stuck": {},
        "meet": {"join": "NODE_JOIN_ALL"},
        "round": {},
        "again": {},
        "end": {"output_variable": "_approval"},
    }
    ways = [
        "think > chek",
        "think > check",
        condition("check > work", "expression", cel="vars.x >"),
        condition("check > stuck", "otherwise"),
        condition("check > meet", "otherwise"),
        condition("check > end", "paradigm_equals", paradigm="act"),
        condition("meet > round", "has_tool_calls"),
        "round > again",
        "again > round",
    ]
    definition = graph(
        nodes, ways, entry_point="", terminal_nodes=["end", "fin"], retry={"factor": 0.5}
    )
    definition.nodes.add(id="work").action.assign.SetInParent()
    definition.reducers["x"] = graph_pb2.REDUCER_UNSPECIFIED
    definition.reducers["y"] = 42  # type: ignore[assignment]
    return definition


def test_a_dozen_faults_are_told_at_once_with_their_places() -> None:
    assert problems(broken()) == {
        ("REQUIRED", "entry_point"),
        ("UNKNOWN_NODE", "terminal_nodes[1]"),
        ("UNKNOWN_NODE", "edges[0].target"),
        ("DUPLICATE_ID", "nodes[9].id"),
        ("NO_MODEL", "nodes[0].action.llm_infer.model"),
        ("TEMPLATE_INVALID", "nodes[0].action.llm_infer.prompt_template"),
        ("EXPRESSION_INVALID", "nodes[1].action.condition_check.condition"),
        ("TEMPLATE_INVALID", "nodes[2].action.tool_call.args_template"),
        ("NAME_RESERVED", "nodes[8].output_variable"),
        ("EXPRESSION_INVALID", "edges[2].condition.expression.cel"),
        ("UNKNOWN_PARADIGM", "edges[5].condition.paradigm_equals.paradigm"),
        ("UNKNOWN_VARIANT", 'reducers["x"]'),
        ("UNKNOWN_VARIANT", 'reducers["y"]'),
        ("OUT_OF_RANGE", "retry.factor"),
    }


def test_with_a_beginning_the_island_is_told_too() -> None:
    definition = broken()
    definition.entry_point = "think"
    found = problems(definition)
    assert ("UNREACHABLE_NODE", "nodes[3]") in found
    assert len(found) == 14


def test_what_is_odd_about_it_is_told_apart() -> None:
    assert warnings(broken()) == {
        ("TWO_OTHERWISE", "edges[4].condition.otherwise"),
        ("NO_WAY_TO_END", "nodes[2]"),
        ("NO_WAY_TO_END", "nodes[4]"),
        ("JOIN_ONE_SOURCE", "nodes[5].join"),
        ("LOOP_WITHOUT_EXIT", "nodes[6]"),
    }


def test_every_problem_says_what_and_where() -> None:
    for problem in check(broken(), DEFAULTS).findings.problems:
        assert problem.path
        assert problem.message


def test_checking_changes_nothing() -> None:
    definition = broken()
    before = definition.SerializeToString(deterministic=True)
    check(definition, DEFAULTS)
    assert definition.SerializeToString(deterministic=True) == before


def test_a_graph_that_is_too_large_is_not_looked_at() -> None:
    definition = graph("a", metadata={"x": "y" * 3_000_000}, name="")
    assert problems(definition) == {("TOO_LARGE", "")}


def test_too_many_nodes_or_edges_are_not_looked_at() -> None:
    nodes = graph(" ".join(f"n{number}" for number in range(MAX_NODES + 1)))
    assert problems(nodes) == {("TOO_MANY", "nodes")}
    edges = graph("a b", ["a > b"] * (MAX_EDGES + 1))
    assert problems(edges) == {("TOO_MANY", "edges")}


def test_an_inner_graph_has_the_same_limits() -> None:
    outer = graph({"a": {"action": {"subgraph": {"graph": {"definition": {}}}}}})
    inner = outer.nodes[0].action.subgraph.graph.definition
    inner.CopyFrom(graph(" ".join(f"n{number}" for number in range(MAX_NODES + 1))))
    assert ("TOO_MANY", "nodes[0].action.subgraph.graph.definition.nodes") in problems(outer)


def test_a_large_graph_full_of_faults_is_checked_in_bounded_time() -> None:
    definition = graph(
        " ".join(f"n{number}" for number in range(MAX_NODES)),
        [f"m{number} > k{number}" for number in range(MAX_EDGES)],
    )
    started = time.perf_counter()
    found = check(definition, DEFAULTS).findings
    assert time.perf_counter() - started < 5.0
    assert found.problems[-1].code == "TOO_MANY_PROBLEMS"


# ---- whatever comes in, nothing but GraphInvalid comes out -----------------------------------

names = st.sampled_from(["a", "b", "c", "", "_approval", "ä", "vars.x", "{{x", "true", "a" * 200])
texts = names | st.text(max_size=20)
actions = st.sampled_from(
    [
        {},
        {"assign": {}},
        {"llm_infer": {}},
        {"llm_infer": {"model": "m", "temperature": 9}},
        {"tool_call": {"tool_name": "{{x}}"}},
        {"delegate": {}},
        {"human_approval": {"options": [{"id": "x"}, {"id": "x"}]}},
        {"switch_paradigm": {"paradigm": "x"}},
        {"run_requested_tools": {}},
        {"step": {"program": "p"}},
        {"map": {"items": "[1]", "body": {"node_id": "a"}}},
        {"subgraph": {"graph": {"same_version": {}}}},
        {"sleep": {"duration": "1s"}},
        {"wait_signal": {"name": "s"}},
    ]
) | texts.map(lambda text: {"condition_check": {"condition": text}})
conditions = st.sampled_from(
    [None, {}, {"always": {}}, {"otherwise": {}}, {"has_tool_calls": {}}, {"error_occurred": {}}]
) | texts.map(lambda text: {"expression": {"cel": text}})
nodes_of = st.dictionaries(
    names,
    st.fixed_dictionaries(
        {
            "action": actions,
            "interrupt": st.booleans(),
            "join": st.sampled_from(["NODE_JOIN_ANY", "NODE_JOIN_ALL"]),
            "output_variable": texts,
        }
    ),
    max_size=5,
)
edges_of = st.lists(
    st.tuples(
        st.builds("{} > {}".format, names, names),
        st.fixed_dictionaries({"condition": conditions, "handoff": st.booleans(), "id": texts}),
    ),
    max_size=8,
)
graphs = st.builds(
    graph,
    nodes_of,
    edges_of,
    entry_point=names,
    terminal_nodes=st.lists(names, max_size=2),
    default_model=texts,
)


def compiles_or_is_refused(definition: StateGraph) -> None:
    found = check(definition, DEFAULTS).findings
    if not found.problems:
        compile_graph(definition, DEFAULTS)
        return
    with pytest.raises(GraphInvalid) as caught:
        compile_graph(definition, DEFAULTS)
    assert caught.value.problems == found.problems


@given(graphs)
@settings(max_examples=300)
def test_a_random_graph_compiles_or_is_refused(definition: StateGraph) -> None:
    compiles_or_is_refused(definition)


@given(st.data())
@settings(max_examples=300)
def test_a_graph_with_changed_bytes_compiles_or_is_refused(data: st.DataObject) -> None:
    content = bytearray(chain(9).SerializeToString(deterministic=True))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    try:
        definition = StateGraph.FromString(bytes(content))
    except DecodeError:
        return
    compiles_or_is_refused(definition)


def test_a_node_evaluates_a_bounded_number_of_conditions() -> None:
    def leaving(count: int) -> graph_pb2.StateGraph:
        made = graph("a b", ["a > b"] * (count + 1))
        for edge in list(made.edges)[:count]:
            edge.condition.expression.cel = "vars.x > 1"
        made.edges[count].condition.otherwise.SetInParent()
        return made

    assert problems(leaving(MAX_CONDITIONAL_EDGES)) == set()
    assert problems(leaving(MAX_CONDITIONAL_EDGES + 1)) == {("TOO_MANY", "nodes[0]")}


def test_an_assign_evaluates_a_bounded_number_of_expressions() -> None:
    def assigning(count: int) -> graph_pb2.StateGraph:
        expressions = {f"v{number}": "1" for number in range(count)}
        return graph({"a": {"action": {"assign": {"set": expressions}}}})

    assert problems(assigning(MAX_EXPRESSIONS)) == set()
    assert problems(assigning(MAX_EXPRESSIONS + 1)) == {("TOO_MANY", "nodes[0].action.assign.set")}
