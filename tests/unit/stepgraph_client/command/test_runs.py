from __future__ import annotations

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1.conversation_pb2 import Message
from stepgraph.v1.event_pb2 import RunPaused
from stepgraph.v1.run_pb2 import GraphVersion, RunStatus
from stepgraph.v1.run_service_pb2 import GetRunStateResponse, WatchBatch, WatchRunsResponse
from tests.support.fake_server import run_event


@pytest.fixture
def one(server):
    return server.add_run(
        "r",
        run_event(run_paused=RunPaused(reason="lunch")),
        graph=GraphVersion(name="g", version=2),
        labels={"team": "search"},
        create_time=Timestamp(seconds=1769817600),
        open_interrupts=2,
    )


def test_runs_are_listed_in_columns(run, server, one) -> None:
    failed = run_event()
    failed.run_failed.failure.code = "BAD"
    server.add_run("other", failed, quarantined=True)
    lines = run("runs", "list").out.splitlines()
    assert lines[0].split() == ["RUN", "GRAPH", "STATUS", "CREATED", "STEPS"]
    assert lines[1].split("  ")[0] == "r"
    assert "g@2" in lines[1]
    assert lines[1].endswith("2 open questions")
    assert lines[2].endswith("BAD, its journal can't be read")


def test_a_list_is_filtered_and_bounded(run, server, one) -> None:
    for n in range(5):
        server.add_run(f"r{n}")
    ended = run(
        "runs",
        "list",
        "--limit",
        "3",
        "--json",
        "--status",
        "running",
        "--label",
        "a=b",
        "--roots",
        "--graph",
        "g",
    )
    assert len(ended.json) == 3
    asked = server.requests["ListRuns"][0].filter
    assert (list(asked.statuses), asked.graph, asked.roots_only) == ([2], "g", True)
    assert asked.labels["a"] == "b"


def test_an_unknown_status_is_typed_wrongly(run) -> None:
    ended = run("runs", "list", "--status", "walking")
    assert ended.code == 2
    assert "there are pending, running" in ended.err


def test_an_empty_list_says_what_to_do(run) -> None:
    ended = run("runs", "list")
    assert (ended.code, ended.out) == (0, "")
    assert "run GRAPH" in ended.err


def test_a_run_is_shown_with_all_that_matters(run, one) -> None:
    one.complete("It is\nsunny.")
    one.run.end_time.seconds = one.run.create_time.seconds + 90
    out = run("runs", "get", "r").out
    assert "status      completed" in out
    assert "labels      team=search" in out
    assert "(after 1 min 30 s)" in out
    assert "interrupts --run r" in out
    assert "output      It is\n            sunny." in out
    assert run("runs", "get", "r", "--json").json["labels"] == {"team": "search"}


def test_a_failure_is_shown(run, server) -> None:
    failed = run_event()
    failed.run_failed.failure.code = "BAD"
    failed.run_failed.failure.message = "it broke"
    server.add_run("f", failed)
    assert "failure     BAD: it broke" in run("runs", "get", "f").out


def test_a_run_that_is_not_there_is_refused(run) -> None:
    ended = run("runs", "get", "nope")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == "Error: RUN_NOT_FOUND: there is no run nope\n"


def test_a_run_is_watched_from_any_event_on(run, one) -> None:
    one.complete()
    assert "lunch" in run("runs", "watch", "r").out
    assert "lunch" not in run("runs", "watch", "r", "--after", "1").out
    lines = run("runs", "watch", "r", "--json", "--history").out.splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [1, 2]


def test_all_runs_are_watched_if_none_is_named(run, server) -> None:
    event = run_event(1, run_paused=RunPaused(reason="lunch"))
    server.news = [WatchRunsResponse(batches=[WatchBatch(run_id="x", events=[event])])]
    ended = run("runs", "watch")
    assert ended.code == 0
    assert ended.out.startswith("x  paused: lunch")


def test_a_state_is_shown_as_variables_and_messages(run, server, one) -> None:
    page = GetRunStateResponse(sequence=7)
    page.state.variables["city"].text = "Oslo"
    message = Message(role=2)
    message.content.add().text.text = "hello"
    page.state.conversation.messages.append(message)
    server.states["r"] = [page]
    assert run("runs", "state", "r").out == "after event 7\ncity  Oslo\nuser  hello\n"
    document = run("runs", "state", "r", "--at", "7", "--json").json
    assert document["state"]["variables"] == {"city": {"text": "Oslo"}}
    assert server.requests["GetRunState"][1].sequence == 7


def test_what_a_run_waits_for_is_explained(run, one) -> None:
    assert "waits for an executor (model m: 0 connected)" in run("runs", "explain", "r").out
    assert run("runs", "explain", "r", "--json").json["waits"]
    one.complete()
    assert "waits for nothing" in run("runs", "explain", "r").out


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
    assert run("runs", "retry", "r").out == "r-retry is running\n"


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
