from __future__ import annotations

import pytest

from stepgraph.v1 import event_pb2 as pb
from stepgraph.v1.graph_pb2 import GraphEdge
from stepgraph_client.command.drawing import Footprints, condition_text, draw, edge_ids
from stepgraph_client.conditions import (
    custom,
    error_occurred,
    expression,
    has_tool_calls,
    state_equals,
)
from stepgraph_client.files import parse_graph
from stepgraph_client.lines import Tone
from tests.support.fake_server import run_event

GRAPH = """
name: g
default_model: m
start: think
end: [done]
nodes:
  - {id: alone, assign: {}}
  - {id: done, assign: {}}
  - {id: look, tool_call: {tool_name: search}, interrupt: true}
  - {id: think, llm_infer: {}}
  - {id: sub, delegate: {agent_kind: writer}}
edges:
  - {from: think, to: look, when: has_tool_calls, max_traversals: 3}
  - {from: think, to: done, when: otherwise}
  - {from: look, to: think}
  - {from: look, to: sub, when: {error_occurred: [BAD]}}
"""


def drawn(path: Footprints | None = None) -> list[str]:
    return [line.text for line in draw(parse_graph(GRAPH).graph, path)]


def test_nodes_stand_in_the_order_in_which_they_are_reached() -> None:
    """With the ways that lead on below them; last what no edge leads to."""
    assert drawn() == [
        "● think  llm infer m  [starts]",
        "  ├─▶ look  if has tool calls  (at most 3 times)",
        "  └─▶ done  if otherwise",
        "● look  tool call search  [asks first]",
        "  ├─▶ think  (back)",
        "  └─▶ sub  if error BAD",
        "◎ done  assign  [ends]",
        "● sub  delegate writer",
        "● alone  assign",
    ]


def followed(*edges: str) -> list[pb.EdgeOutcome]:
    return [
        pb.EdgeOutcome(edge_id=each, verdict=pb.EdgeVerdict.EDGE_VERDICT_FOLLOWED) for each in edges
    ]


def test_the_path_of_a_run_is_told_by_marks() -> None:
    path = Footprints()
    for event in (
        run_event(superstep_started=pb.SuperstepStarted(nodes=["think"])),
        run_event(node_completed=pb.NodeCompleted(node_id="think", edges=followed("think.look"))),
        run_event(superstep_started=pb.SuperstepStarted(nodes=["look"])),
        run_event(node_failed=pb.NodeFailed(node_id="look", edges=followed("look.sub"))),
        run_event(edges_evaluated=pb.EdgesEvaluated(edges=followed("look.sub"))),
        run_event(superstep_started=pb.SuperstepStarted(nodes=["sub", "think"])),
    ):
        path.take(event)
    lines = list(draw(parse_graph(GRAPH).graph, path))
    assert [line.text for line in lines] == [
        "▶ think  llm infer m  [starts]  2 times",
        "  ├═▶ look  if has tool calls  (at most 3 times)",
        "  └─▶ done  if otherwise",
        "✗ look  tool call search  [asks first]",
        "  ├─▶ think  (back)",
        "  └═▶ sub  if error BAD  2 times",
        "◎ done  assign  [ends]",
        "▶ sub  delegate writer",
        "○ alone  assign",
    ]
    assert [line.tone for line in lines][:3] == [Tone.WARNING, Tone.GOOD, Tone.QUIET]


def test_nothing_is_under_way_in_a_run_that_is_over() -> None:
    path = Footprints()
    path.take(run_event(superstep_started=pb.SuperstepStarted(nodes=["think"])))
    path.take(run_event(run_cancelled=pb.RunCancelled()))
    path.take(run_event())
    assert drawn(path)[0].startswith("✓ think")


def test_edges_without_ids_have_those_of_the_server() -> None:
    edges = [
        GraphEdge(source="a", target="b"),
        GraphEdge(source="a", target="b"),
        GraphEdge(id="a.b.2", source="x", target="y"),
    ]
    assert list(edge_ids(edges)) == ["a.b", "a.b.3", "a.b.2"]


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (has_tool_calls(), "has tool calls"),
        (error_occurred(), "any error"),
        (state_equals("a", "b"), "a is 'b'"),
        (expression("vars.n  > 3"), "vars.n > 3"),
        (custom("is_warm"), "custom is_warm"),
    ],
)
def test_conditions_are_told_in_words(condition, text) -> None:
    assert condition_text(condition) == text


def test_a_subgraph_names_its_graph() -> None:
    text = "name: g\nstart: a\nnodes:\n  - {id: a, subgraph: {graph: {reference: other}}}\n"
    (line,) = draw(parse_graph(text).graph)
    assert line.text == "● a  subgraph other  [starts]"
