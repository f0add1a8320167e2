from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from google.protobuf.json_format import MessageToJson

from stepgraph_client import files
from stepgraph_client.conditions import has_tool_calls, is_final_answer
from stepgraph_client.files import GraphFileError, load_graph, parse_graph
from stepgraph_client.graphs import Graph

if TYPE_CHECKING:
    from pathlib import Path

SMALL = """\
name: react
default_model: m
start: think
end: [done]
nodes:
  - id: think
    llm_infer: {include_tool_definitions: true}
  - id: act
    run_requested_tools:
  - id: done
    assign: {}
edges:
  - {from: think, to: act, when: has_tool_calls}
  - {from: act, to: think}
  - {from: think, to: done, when: is_final_answer}
"""


def test_a_graph_in_short_is_the_graph_of_the_builder() -> None:
    g = Graph("react", default_model="m")
    g.llm("think", tools=True)
    g.run_tools("act")
    g.assign("done")
    g.edge("think", "act", when=has_tool_calls())
    g.edge("act", "think")
    g.edge("think", "done", when=is_final_answer())
    g.start("think")
    g.end("done")
    assert parse_graph(SMALL).graph == g.build()


@pytest.mark.parametrize("snake_case", [True, False])
def test_the_json_form_of_the_schema_is_read(snake_case) -> None:
    graph = parse_graph(SMALL).graph
    graph.time_limit.seconds = 90
    text = MessageToJson(graph, preserving_proto_field_name=snake_case)
    assert parse_graph(text, is_json=True).graph == graph
    assert parse_graph(text).graph == graph


def test_the_example_of_the_documentation_is_a_graph() -> None:
    assert files.__doc__ is not None
    lines = files.__doc__.split("with these shorthands:\n")[1].split("\nA message with")[0]
    text = "\n".join(line.removeprefix("    ") for line in lines.splitlines())
    graph = parse_graph(text).graph
    assert [node.id for node in graph.nodes] == ["think", "act", "done"]
    assert json.loads(graph.nodes[0].action.llm_infer.output_schema) == {"type": "object"}


def test_a_file_is_read_by_what_it_is_called(tmp_path: Path) -> None:
    yaml, js = tmp_path / "g.yaml", tmp_path / "g.JSON"
    yaml.write_text(SMALL, encoding="utf-8-sig")
    js.write_text('{"name":\t"g"}')
    assert load_graph(yaml).graph.name == "react"
    assert load_graph(js).graph.name == "g"
    assert load_graph(str(js)).graph.name == "g", "a place may be text"


def test_everything_that_is_wrong_is_told_in_the_order_of_the_file() -> None:
    text = "name: 3\nnodes:\n  - id: a\n    llm_infer: {modell: m}\nedges: {}\n"
    with pytest.raises(GraphFileError) as caught:
        parse_graph(text, file="g.yaml")
    assert str(caught.value).splitlines() == [
        'g.yaml:1:7: name: expected text, found an integer (3); write "3" in quotes',
        "g.yaml:4:17: nodes[0].action.llm_infer: there is no field 'modell' in llm_infer; did you mean 'model'?",
        "g.yaml:5:8: edges: expected a list, found a mapping",
    ]


def test_many_problems_are_counted_and_not_poured_out() -> None:
    text = "\n".join(f"bad{n}: 1" for n in range(30))
    with pytest.raises(GraphFileError, match="and 10 more") as caught:
        parse_graph(text)
    assert len(caught.value.problems) == 30


def test_text_that_is_no_yaml_is_told_with_its_place() -> None:
    with pytest.raises(GraphFileError, match=r"g\.yaml:1:5: mapping values"):
        parse_graph("a: b: c", file="g.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "it can't be read: No such file"), (b"\xff\xfe\xfa", "it is not UTF-8 text")],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path, content, message) -> None:
    path = tmp_path / "g.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(GraphFileError, match=message):
        load_graph(path)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("nodes[0].action.llm_infer.include_tool_definitions", 7),
        ("nodes[0].action.llm_infer.model", 7),
        ("nodes[1]", 8),
        ("edges[2].condition", 15),
        ("edges[2].condition.is_final_answer", 15),
        ("entry_point", 3),
        ("terminal_nodes[0]", 4),
        ("terminal_nodes[7]", 4),
        ("nodes[9].id", 5),
        ("max_iterations", 1),
        ('reducers["a.b"]', 1),
        ("", 1),
        ("nonsense]][", 1),
    ],
)
def test_a_problem_of_the_server_is_located_or_what_is_around_it(path, line) -> None:
    place = parse_graph(SMALL, file="g.yaml").source.locate(path)
    assert (place.file, place.line) == ("g.yaml", line)


def test_a_key_with_dots_is_left_as_a_whole() -> None:
    source = parse_graph("paradigms:\n  a.b: {system_prompt: x}\n").source
    assert source.locate('paradigms["a.b"].tool_filter').line == 2
    assert source.locate('paradigms["z.z"]').line == 1
    assert source.file == "graph"
