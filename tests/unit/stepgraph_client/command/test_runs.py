from __future__ import annotations

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1.event_pb2 import RunPaused
from stepgraph.v1.run_pb2 import GraphVersion
from stepgraph.v1.run_service_pb2 import WatchBatch, WatchRunsResponse
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
    assert lines[0].split() == ["RUN", "GRAPH", "STATUS", "CREATED", "STEPS", "NOTES"]
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
    said, advice = ended.err.splitlines()
    assert said == "Error: RUN_NOT_FOUND: there is no run nope"
    assert advice.endswith("runs list` shows the runs of this namespace.")


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


def test_a_list_is_bounded_in_time(run, server, one) -> None:
    """A point in time, or how long ago."""
    run("runs", "list", "--since", "2026-01-31", "--until", "2026-02-01T12:00:00Z")
    asked = server.requests["ListRuns"][0].filter
    assert (asked.create_time_min.seconds, asked.create_time_max.seconds) == (
        1769817600,
        1769947200,
    )
    ended = run("runs", "list", "--since", "yesterday")
    assert ended.code == 2
    assert "no point in time, such as 2026-01-31" in ended.err


def test_what_a_limit_leaves_out_is_told(run, server) -> None:
    for n in range(3):
        server.add_run(f"r{n}")
    ended = run("runs", "list", "--limit", "2")
    assert len(ended.out.splitlines()) == 3
    assert "there are more than 2; --limit shows them" in ended.err
    assert run("runs", "list", "--limit", "3").err == ""
    assert run("runs", "list", "-o", "ids", "--limit", "2").out == "r0\nr1\n"


def test_many_runs_are_watched_with_a_filter(run, server) -> None:
    event = run_event(1, run_paused=RunPaused(reason="lunch"))
    server.news = [WatchRunsResponse(batches=[WatchBatch(run_id="x", events=[event])])]
    ended = run("runs", "watch", "--all", "--label", "a=b", "--graph", "g", "--roots", "--json")
    assert json.loads(ended.out)["run_id"] == "x"
    (asked,) = server.requests["WatchRuns"]
    assert (dict(asked.filter.labels), asked.filter.graph) == ({"a": "b"}, "g")
    assert asked.filter.roots_only
    run("runs", "watch", "--all", "--resume", "1")
    assert server.requests["WatchRuns"][1].resume_token == "1"


def test_a_run_is_watched_with_its_children(run, server, one) -> None:
    one.complete()
    assert run("runs", "watch", "r", "--tree", "--resume", "t").code == 0
    (asked,) = server.requests["WatchRun"]
    assert asked.include_descendants
    assert asked.resume_token == "t"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("r", "--all"), "RUN_ID or --all"),
        (("r", "--label", "a=b"), "are for --all"),
        (("--tree",), "--tree needs a RUN_ID"),
        (("r", "--resume", "t"), "a run goes on with --after"),
        (("--all", "--after", "3"), "are for one run"),
        (("r", "--tree", "--history"), "are for one run"),
    ],
    ids=" ".join,
)
def test_options_that_would_do_nothing_are_refused(run, words, said) -> None:
    ended = run("runs", "watch", *words)
    assert ended.code == 2
    assert said in ended.err
