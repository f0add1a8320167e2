from __future__ import annotations

import grpc
import pytest

from stepgraph.v1.graph_service_pb2 import GraphProblem
from stepgraph_client.command.parameters import GivenGraph
from stepgraph_client.command.problems import all_problems, problem_lines, syntax_text
from stepgraph_client.errors import GraphInvalid, Status
from stepgraph_client.files import parse_graph

TEXT = "name: g\nnodes:\n  - id: a\n    llm_infer: {}\n"
PROBLEM = GraphProblem(
    code="MODEL_MISSING",
    path="nodes[0].action.llm_infer.model",
    message="it names no model",
    hint="name one, or a default_model",
)
REFUSAL = GraphInvalid(
    Status(
        code=grpc.StatusCode.INVALID_ARGUMENT, message="broken", reason="GRAPH_INVALID", metadata={}
    )
)


def test_a_problem_is_told_with_its_place_in_the_file_and_what_to_do() -> None:
    source = parse_graph(TEXT, file="g.yaml").source
    assert list(problem_lines([PROBLEM], source)) == [
        "g.yaml:4:5: error: it names no model (at nodes[0].action.llm_infer.model) [MODEL_MISSING]",
        "    name one, or a default_model",
    ]


def test_without_a_file_the_path_has_to_do() -> None:
    lines = list(problem_lines([GraphProblem(code="X", message="odd")], None, "warning"))
    assert lines == ["warning: odd [X]"]


async def test_a_refusal_with_the_first_problems_is_told_with_all(client, server) -> None:
    server.problems = [PROBLEM, PROBLEM]
    loaded = parse_graph(TEXT, file="g.yaml")
    graph = GivenGraph(reference="g.yaml", definition=loaded.graph, source=loaded.source)
    error = await all_problems(client, graph, REFUSAL)
    assert error.message.startswith("g.yaml has 2 problems; nothing was stored\ng.yaml:4:5: error")


async def test_a_reference_has_no_file_to_look_into(client) -> None:
    error = await all_problems(client, GivenGraph(reference="g"), REFUSAL)
    assert error.message == "GRAPH_INVALID: broken"


def test_a_missing_start_is_told_by_the_name_that_files_have() -> None:
    """The message says `start`, with a line, and that the first node could be it."""
    problem = GraphProblem(
        code="REQUIRED", path="entry_point", message="no node runs first", hint="x"
    )
    source = parse_graph(TEXT, file="g.yaml").source
    assert list(problem_lines([problem], source)) == [
        "g.yaml:1:1: error: `start` is missing: no node runs first (at entry_point) [REQUIRED]",
        "    Write `start: a` if the first node is to be it.",
    ]
    empty = parse_graph("name: g", file="g.yaml").source
    assert list(problem_lines([problem], empty))[1] == "    x"


TOKENS = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, STRING, BYTES, IDENTIFIER}"
)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("token recognition error at: '= '", "'=' is not known in an expression; write =="),
        ("token recognition error at: '@'", "'@' is not known in an expression"),
        (f"mismatched input '<EOF>' expecting {TOKENS}", "the expression ends too early"),
        (f"extraneous input '||' expecting {TOKENS}", "'||' does not belong here"),
        ("mismatched input 'and' expecting <EOF>", "'and' does not belong here; write &&"),
        ("mismatched input '<EOF>' expecting ':'", "the expression ends too early; expected ':'"),
        (
            "mismatched input '<EOF>' expecting {'}', ','}",
            "the expression ends too early; expected '}' or ','",
        ),
        ("missing ')' at '<EOF>'", "')' is missing"),
        ("something new", "Syntax error: something new"),
    ],
)
def test_an_expression_is_told_without_the_lists_of_its_parser(said, told) -> None:
    """What people can't use is left out; what nobody has seen yet stays."""
    assert syntax_text(f"Syntax error: {said}, at character 8") == f"{told}, at character 8"
