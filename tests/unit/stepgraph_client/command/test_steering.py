from __future__ import annotations

import json

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from tests.support.fake_server import run_event


@pytest.fixture
def one(server):
    return server.add_run("r", run_event())


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("cancel", "r", "--reason", "enough"), "stopping"),
        (("pause", "r"), "paused"),
        (("unpause", "r"), "running"),
        (("signal", "r", "go", "--text", "now"), "running"),
        (("signal", "r", "go", "--payload", "[1]"), "running"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_runs_are_steered(run, one, words, status) -> None:
    assert run("runs", *words).out == f"r is {status}\n"
    assert run("runs", *words, "--json").json["run_id"] == "r"


def test_a_signal_carries_what_it_was_given(run, server, one) -> None:
    run("runs", "signal", "r", "go", "--payload", "[1]", "--correlation", "c")
    (request,) = server.requests["SignalRun"]
    assert (request.payload.json, request.correlation, request.name) == ("[1]", "c", "go")


def test_a_failed_run_is_retried_as_a_new_one(run, one) -> None:
    ended = run("runs", "retry", "r")
    assert ended.out == "r-retry is running\n"
    assert "runs watch r-retry" in ended.err
    assert run("runs", "retry", "r", "--run-id", "again", "-o", "ids").out == "again\n"


def test_a_run_is_deleted(run, server, one) -> None:
    one.run.status = RunStatus.RUN_STATUS_COMPLETED
    assert run("runs", "delete", "r").out == "r is deleted\n"
    assert server.runs == {}


def test_a_run_is_forked_with_what_is_to_be_different(run, server, one) -> None:
    """What is given goes into the request, and what is not stays as before."""
    words = ("--at", "3", "--run-id", "new", "--graph", "g@3", "--var", "n:=2", "--label", "a=b")
    limits = ("--max-iterations", "9", "--token-limit", "7", "--time-limit", "1m")
    assert run("runs", "fork", "r", *words, *limits).out == "new is running\n"
    (asked,) = server.requests["ForkRun"]
    assert (asked.run_id, asked.sequence, asked.graph, asked.labels["a"]) == ("r", 3, "g@3", "b")
    assert (asked.max_iterations, asked.token_limit, asked.time_limit.seconds) == (9, 7, 60)
    assert asked.changes[0].patch.update.variables["n"].json == "2"
    assert run("runs", "fork", "r", "--json").json["run_id"] == "r-fork"
    plain = server.requests["ForkRun"][1]
    assert not plain.changes
    assert not plain.HasField("token_limit")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("proceed", "proceed"),
        ("revise:shorter", "revise"),
        ("choose:yes", "choose"),
        ("abort", "abort"),
        ("reply:x", "reply"),
        ("reply-json:[1]", "reply"),
        ("failed:GONE", "failed"),
    ],
)
def test_a_fork_may_have_another_answer(run, server, one, answer, kind) -> None:
    run("runs", "fork", "r", "--answer", f"4/ask={answer}")
    (change,) = server.requests["ForkRun"][0].changes
    assert change.answer.activation_id == "4/ask"
    assert change.answer.answer.WhichOneof("kind") == kind


def test_a_fork_may_have_another_result(run, server, one, tmp_path) -> None:
    """As JSON of the schema, typed or in a file."""
    result = {"tool": {"output": {"text": "sunny"}}}
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result))
    run("runs", "fork", "r", "--result", f"2/look/t0/e0={json.dumps(result)}")
    run("runs", "fork", "r", "--result", f"2/look/t0/e0=@{file}", "--delete-var", "a")
    first, second = (each.changes[0].result for each in server.requests["ForkRun"])
    assert first == second
    assert first.result.tool.output.text == "sunny"
    assert list(server.requests["ForkRun"][1].changes[1].patch.update.delete_variables) == ["a"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fork", "r", "--answer", "4/ask=perhaps"), "'perhaps' is no answer: write proceed"),
        (("fork", "r", "--result", "t={"), "this is no stepgraph.v1.TaskResult"),
        (("fork", "r", "--result", "t=@/nowhere"), "/nowhere can't be read"),
        (("signal", "r", "go", "--text", "a", "--payload", "1"), "not both"),
        (("fork", "r", "--at", "0"), "'--at': 0 is not in the range 1<=x<=4294967295"),
        (("fork", "r", "--max-iterations", "-1"), "'--max-iterations': -1 is not in the range"),
        (("fork", "r", "--token-limit", "-1"), "'--token-limit': -1 is not in the range"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_typed_wrongly_is_not_sent(run, server, one, words, said) -> None:
    ended = run("runs", *words)
    assert ended.code == 2
    assert said in ended.err
    assert not server.requests["ForkRun"]
