from __future__ import annotations

import json

import pytest

from stepgraph.v1.event_pb2 import RunStarted, SuperstepStarted
from stepgraph.v1.graph_service_pb2 import GraphProblem
from stepgraph.v1.run_pb2 import GraphVersion
from tests.support.fake_server import run_event

FILE = """\
name: mine
nodes:
  - id: a
    llm_infer: {}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    return str(path)


@pytest.fixture(autouse=True)
def script(server) -> None:
    server.script = [
        run_event(run_started=RunStarted(run_id="run-1", graph=GraphVersion(name="g", version=1))),
        run_event(superstep_started=SuperstepStarted(superstep=1, nodes=["a"])),
    ]


def test_a_run_is_started_and_watched_to_its_end(run) -> None:
    ended = run("run", "react")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "run run-1 of g@1",
        "1. a",
        "completed after 1 superstep",
        "done",
    ]


def test_everything_that_can_be_said_arrives(run, server) -> None:
    run(
        *("run", "react", "--input", "hi", "--var", "city=Oslo", "--var", "days:=3"),
        *("--message", "hello", "--label", "a=b", "--selector", "c=d", "--run-id", "mine"),
        *("--max-iterations", "5", "--token-limit", "6", "--time-limit", "1m"),
        *("--continue-from", "old", "--delay", "5s"),
    )
    (request,) = server.requests["StartRun"]
    assert request.input.value.text == "hi"
    assert request.input.variables["city"].text == "Oslo"
    assert request.input.variables["days"].json == "3"
    assert request.input.messages[0].content[0].text.text == "hello"
    assert (dict(request.labels), dict(request.selector)) == ({"a": "b"}, {"c": "d"})
    assert (request.run_id, request.max_iterations, request.token_limit) == ("mine", 5, 6)
    assert (request.time_limit.seconds, request.continue_from) == (60, "old")
    assert request.delay.seconds == 5


@pytest.mark.parametrize("words", [("--max-iterations", "0"), ("--token-limit", str(2**63))])
def test_a_limit_that_does_not_fit_is_told_with_what_would(run, server, words) -> None:
    ended = run("run", "react", *words)
    assert ended.code == 2
    assert f"'{words[0]}': {words[1]} is not in the range" in ended.err
    assert not server.requests["StartRun"]


def test_a_script_gets_the_id_and_nothing_else(run) -> None:
    """The same as --detach; the hint for people goes elsewhere."""
    ended = run("run", "react", "-o", "ids", "--run-id", "mine")
    assert (ended.code, ended.out) == (0, "mine\n")
    assert run("run", "react", "--detach", "--run-id", "other").out == "other\n"


def test_json_input_stays_exact(run, server) -> None:
    run("run", "react", "--input-json", '{"n": 9007199254740993}')
    assert server.requests["StartRun"][0].input.value.json == '{"n": 9007199254740993}'


def test_one_input_is_enough(run) -> None:
    ended = run("run", "react", "--input", "a", "--input-json", "1")
    assert ended.code == 2
    assert "not both" in ended.err


def test_a_file_is_registered_and_run(run, server, file) -> None:
    ended = run("run", file)
    assert ended.code == 0
    assert "registered mine@1" in ended.err
    assert server.requests["StartRun"][0].graph.reference.startswith("sha256:")
    assert "registered" not in run("run", file).err


def test_a_file_may_be_sent_along_instead(run, server, file) -> None:
    run("run", file, "--inline")
    assert server.requests["StartRun"][0].graph.definition.name == "mine"
    assert not server.requests["RegisterGraph"]


def test_a_broken_file_is_told_with_all_its_problems_and_their_lines(run, server, file) -> None:
    server.problems = [
        GraphProblem(
            code="MODEL_MISSING", path="nodes[0].action.llm_infer.model", message="no model"
        ),
        GraphProblem(code="ENTRY_MISSING", path="entry_point", message="no start"),
    ]
    ended = run("run", file)
    assert ended.code == 3
    assert f"{file}:4:5: error: no model" in ended.err
    assert f"{file}:1:1: error: no start" in ended.err


def test_a_file_that_is_no_graph_is_typed_wrongly(run, tmp_path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("nam: x\n")
    ended = run("run", str(path))
    assert ended.code == 2
    assert "bad.yaml:1:1: there is no field 'nam' in graph; did you mean 'name'?" in ended.err


def test_a_detached_run_prints_its_id_and_nothing_else(run) -> None:
    ended = run("run", "react", "--detach")
    assert ended.out == "run-1\n"
    assert "runs watch run-1" in ended.err
    assert run("run", "react", "--detach", "--json").json["run_id"] == "run-2"


def test_events_are_json_lines_if_that_is_wanted(run) -> None:
    lines = [json.loads(line) for line in run("run", "react", "--json").out.splitlines()]
    assert [each["sequence"] for each in lines] == [1, 2, 3]
    assert lines[2]["run_completed"]["result"]["output"] == {"text": "done"}


def test_an_id_that_is_taken_is_refused(run, server) -> None:
    server.add_run("r")
    ended = run("run", "react", "--run-id", "r")
    assert ended.code == 3
    assert "RUN_EXISTS: run r exists; choose another id" in ended.err
