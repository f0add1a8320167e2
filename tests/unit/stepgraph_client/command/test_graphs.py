from __future__ import annotations

import pytest

from stepgraph.v1.event_pb2 import SuperstepStarted
from stepgraph.v1.graph_service_pb2 import GraphProblem
from stepgraph.v1.run_pb2 import GraphVersion
from stepgraph_client.files import parse_graph
from tests.support.fake_server import run_event

FILE = "name: g\nnodes:\n  - {id: a, assign: {}}\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "g.yaml"
    path.write_text(FILE)
    return str(path)


def test_a_graph_is_registered_once(run, server, file) -> None:
    server.warnings = [GraphProblem(code="ODD", path="nodes[0]", message="it is odd")]
    ended = run("graphs", "register", file)
    assert ended.out.startswith("registered g@1 (sha256:")
    assert f"{file}:3:5: warning: it is odd (at nodes[0]) [ODD]" in ended.err
    assert run("graphs", "register", file).out.startswith("there already: g@1")
    assert run("graphs", "register", file, "--json").json["version"]["version"] == 1


def test_a_broken_graph_is_not_registered(run, server, file) -> None:
    server.problems = [GraphProblem(code="BAD", path="nodes[0].id", message="bad", hint="mend it")]
    ended = run("graphs", "register", file)
    assert ended.code == 3
    assert f"{file}:3:6: error: bad" in ended.err
    assert "mend it" in ended.err


def test_a_graph_is_validated_without_being_stored(run, server, file) -> None:
    ended = run("graphs", "validate", file)
    assert (ended.code, ended.out) == (0, "g is fine (nodes: 1, edges: 0)\n")
    server.problems = [GraphProblem(code="BAD", path="nodes[0]", message="bad")]
    server.warnings = [GraphProblem(code="ODD", message="odd")]
    ended = run("graphs", "validate", file)
    assert ended.code == 3
    assert ended.out.splitlines() == [
        f"{file}:3:5: error: bad (at nodes[0]) [BAD]",
        f"{file}:1:1: warning: odd [ODD]",
    ]
    assert "has 1 problem" in ended.err
    assert run("graphs", "validate", file, "--json").json["problems"][0]["code"] == "BAD"
    assert not server.graphs


def test_what_is_no_file_cannot_be_registered(run) -> None:
    ended = run("graphs", "register", "react")
    assert ended.code == 2
    assert "there is no file 'react'" in ended.err


def test_a_definition_is_printed_as_a_file_that_can_be_registered_again(run, file) -> None:
    run("graphs", "register", file)
    out = run("graphs", "get", "g").out
    assert out.startswith("# g@1  sha256:")
    assert parse_graph(out).graph == parse_graph(FILE).graph
    assert run("graphs", "get", "g", "--json").json["definition"]["name"] == "g"
    assert run("graphs", "get", "nope").code == 3


def test_graphs_are_drawn_by_the_server_in_mermaid(run, server) -> None:
    assert run("graphs", "show", "g", "--mermaid").out == "flowchart TD\n"
    assert run("graphs", "show", "--run", "r", "--mermaid").out == "flowchart TD\n"
    assert [each.run_id for each in server.requests["RenderGraph"]] == ["", "r"]


def test_graphs_are_drawn_for_a_terminal_with_the_path_of_a_run(run, server, file) -> None:
    run("graphs", "register", file)
    assert run("graphs", "show").code == 2
    assert run("graphs", "show", "g").out == "g@1\n● a  assign\n"
    started = SuperstepStarted(superstep=1, nodes=["a"])
    server.add_run("r", run_event(superstep_started=started), graph=GraphVersion(digest="g"))
    out = run("graphs", "show", "--run", "r").out
    assert out.splitlines()[:2] == ["g@1, run r", "▶ a  assign"]
    assert "✓ done, ▶ under way" in out
    assert server.requests["WatchRun"][0].history_only


def test_graphs_and_versions_are_listed(run, file) -> None:
    assert "graphs register FILE" in run("graphs", "list").err
    run("graphs", "register", file)
    assert run("graphs", "list").out.splitlines()[1].split()[:2] == ["g", "1"]
    assert run("graphs", "list", "g", "--json").json[0]["version"] == 1
    assert run("graphs", "versions", "g", "-o", "ids").out == "g@1\n"
    assert run("graphs", "versions", "nope").code == 3


def test_a_list_that_is_cut_says_so(run, tmp_path) -> None:
    for name in ("a", "b"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(FILE.replace("name: g", f"name: {name}"))
        run("graphs", "register", str(path))
    ended = run("graphs", "list", "--limit", "1", "-o", "table")
    assert "there are more than 1" in ended.err
    assert run("graphs", "list", "-o", "yaml").out.startswith("- name: a\n")
