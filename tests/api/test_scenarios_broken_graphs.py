"""Scenarios of graphs that are wrong in many places: all problems at once, each with its place, and nothing stored."""

from __future__ import annotations

import time

import pytest
from google.protobuf import json_format

from stepgraph_client import GraphInvalid, parse_graph
from tests.support.e2e_house import house_with_server
from tests.support.graphs import chain

BROKEN = """
name: broken
start: nowhere
nodes:
  - id: first
    assign: {set: {x: "1 +"}}
  - id: first
    assign: {}
  - id: think
    llm_infer: {prompt_template: "{{open"}
  - id: lonely
    assign: {}
  - id: join
    assign: {}
    join: all
edges:
  - {from: first, to: gone}
  - {from: first, to: think, when: {expression: "vars.x >"}}
  - {from: think, to: join}
  - {from: join, to: first}
  - {from: join, to: first, when: {otherwise: {}}}
end: [missing]
"""
PROBLEMS = {
    "DUPLICATE_ID": "nodes[1]",
    "EXPRESSION_INVALID": "nodes[0]",
    "TEMPLATE_INVALID": "nodes[2]",
    "NO_MODEL": "nodes[2]",
    "UNKNOWN_NODE": "edges[0].target",
    "OTHERWISE_NEVER_HOLDS": "edges[4]",
}


@pytest.fixture
async def client():
    async with house_with_server() as (house, _):
        yield await house.client()


def broken():
    return parse_graph(BROKEN).graph


async def test_registering_a_broken_graph_tells_the_first_problems_and_stores_nothing(client):
    with pytest.raises(GraphInvalid) as caught:
        await client.register_graph(broken())

    codes = {violation.code for violation in caught.value.violations}
    assert codes >= PROBLEMS.keys()
    assert all(violation.path and violation.message for violation in caught.value.violations)
    assert [each async for each in client.list_graphs()] == []


async def test_validating_it_lists_all_problems_with_code_path_and_message(client):
    found = await client.validate_graph(broken())

    by_code = {}
    for problem in found.problems:
        by_code.setdefault(problem.code, []).append(problem.path)
        assert problem.message
    for code, path in PROBLEMS.items():
        assert any(each.startswith(path) for each in by_code[code]), (code, by_code[code])
    assert {"entry_point", "terminal_nodes[0]"} <= set(by_code["UNKNOWN_NODE"])
    assert not {problem.code for problem in found.warnings} & by_code.keys()
    assert [each async for each in client.list_graphs()] == []


async def test_a_run_of_a_broken_graph_is_not_started(client):
    with pytest.raises(GraphInvalid):
        await client.start_run(broken())

    assert [run async for run in client.list_runs()] == []


async def test_a_valid_graph_of_2000_nodes_is_checked_within_a_second(client):
    large = chain(2_000)
    started = time.process_time()

    found = await client.validate_graph(large)

    assert not found.problems
    assert time.process_time() - started < 2  # a second, and room for slow machines
    assert (await client.register_graph(large)).created


async def test_a_comment_among_the_entries_of_a_map_is_a_problem_and_never_a_crash(client):
    graph = json_format.ParseDict(
        {"name": "g", "nodes": [{"id": "a", "action": {}, "metadata": {"#": "comment"}}]},
        broken().__class__(),
    )

    found = await client.validate_graph(graph)

    assert "UNKNOWN_VARIANT" in {problem.code for problem in found.problems}
