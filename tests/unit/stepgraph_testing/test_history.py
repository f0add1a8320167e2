"""What follows from events, as assertions and as a story."""

from __future__ import annotations

import pytest
from google.protobuf import json_format

from stepgraph.v1 import event_pb2
from stepgraph_testing.history import History, Path


def history(*events):
    made = []
    for sequence, event in enumerate(events, 1):
        parsed = json_format.ParseDict(event, event_pb2.RunEvent())
        parsed.sequence = sequence
        made.append(parsed)
    return History(made)


def scheduled(task_id, label="tool t", attempt=1, **more):
    fact = {"taskId": task_id, "label": label, **more}
    if attempt:
        fact["assignment"] = {"attempt": attempt}
    return {"taskScheduled": fact}


STARTED = {"superstepStarted": {"superstep": 1, "nodes": ["a", "b"]}}
NEXT = {"superstepStarted": {"superstep": 2, "nodes": ["c"]}}
AT = "2026-01-01T00:00:00Z"


def test_a_path_is_compared_with_lists():
    """And shown as people draw it."""
    path = history(STARTED, NEXT).path
    assert path == ["a", "b", "c"]
    assert path == ("a", "b", "c")
    assert path != ["a"]
    assert path != "abc"
    assert (path[-1], path[-2:]) == ("c", ["b", "c"])
    assert isinstance(path[1:], Path)
    assert repr(path) == "a → b → c"
    assert repr(Path()) == "(no node)"
    assert hash(path) == hash(Path(("a", "b", "c")))


def test_what_the_server_answers_by_itself_is_no_task():
    """Nobody worked on it: the poll of a Map, a call of a tool that does not exist."""
    seen = history(
        STARTED,
        {"taskCompleted": {"taskId": "1/a/t0/poll"}},
        scheduled("1/a/t0/s0/t0/e0"),
        {"taskCompleted": {"taskId": "1/a/t0/s0/t0/e0", "attempt": 1}},
    )
    assert [task.task_id for task in seen.tasks] == ["1/a/t0/s0/t0/e0"]
    assert "1/a/t0/poll" not in seen.story()


def test_tasks_know_their_attempts_and_their_end():
    """Each kind of event about tasks is counted."""
    seen = history(
        STARTED,
        scheduled("1/a/t0/e0"),
        scheduled("1/b/t0/e0", "llm m", attempt=0),
        {"taskFailed": {"taskId": "1/a/t0/e0", "failure": {"code": "X1"}, "retryTime": AT}},
        {"taskUnclaimed": {"taskId": "1/b/t0/e0"}},
        {"taskAssigned": {"taskId": "1/a/t0/e0", "assignment": {"attempt": 2}}},
        {"taskLost": {"taskId": "1/a/t0/e0", "attempt": 2}},
        {"taskCompleted": {"taskId": "1/a/t0/e0"}},
        {"taskCancelled": {"taskId": "1/b/t0/e0"}},
    ).tasks
    first, second = seen
    assert (first.node_id, first.label, first.attempts, first.outcome) == (
        "a",
        "tool t",
        2,
        "succeeded",
    )
    assert first.failures == ("X1",)
    assert (second.outcome, second.unclaimed) == ("cancelled", True)


def test_what_it_waits_for_is_said():
    """People, tokens, signals, time, executors, work."""

    def opened(name, reason, **more):
        question = {"interruptId": name, "nodeId": name, "reason": reason, **more}
        return {"interruptOpened": {"question": question}}

    waits = history(
        STARTED,
        opened("h", {"human": {"prompt": "ok?"}}, deadlineTime=AT),
        opened("x", {"external": {"token": "t1"}}),
        opened("s", {"signal": {"name": "go"}}),
        opened("gone", {"human": {"prompt": "no"}}),
        opened("closed", {"human": {"prompt": "no"}}),
        {"interruptAnswered": {"interruptId": "gone"}},
        {"interruptClosed": {"interruptId": "closed"}},
        scheduled("1/a/t0/e0", "sleep 1 h", attempt=0, dueTime=AT),
        scheduled("1/a/t0/e1"),
        scheduled("1/a/t0/e2", attempt=0),
        scheduled("1/a/t0/e3", attempt=0),
        scheduled("1/h/t0/e3", attempt=0),
        {"taskUnclaimed": {"taskId": "1/a/t0/e3"}},
        scheduled("1/a/t0/e4", "graph g", attempt=0),
        {"childStarted": {"taskId": "1/a/t0/e4", "runId": "r2"}},
    ).waits_for()
    assert waits == [
        f"h: an answer to 'ok?', until {AT}",
        "x: the token 't1'",
        "s: the signal 'go'",
        f"a: sleep 1 h: until {AT}",
        "a: tool t: attempt 1 is under way",
        "a: tool t: it was not handed out yet",
        "a: tool t: no executor can do it; declare it at the workbench",
        "a: graph g: the child run r2 is not over",
    ]


@pytest.mark.parametrize(
    ("last", "status", "line"),
    [
        ({"runCompleted": {}}, "completed", "it completed"),
        (
            {"runFailed": {"failure": {"code": "X1", "message": "no"}}},
            "failed",
            "it failed: X1: no",
        ),
        ({"runCancelled": {}}, "cancelled", "it was cancelled"),
        (NEXT, "open", "  nothing"),
    ],
)
def test_how_it_ended_is_said(last, status, line):
    """In one word, and at the end of the story."""
    told = history(STARTED, scheduled("1/a/t0/e0"), {"taskFailed": {"taskId": "1/a/t0/e0"}}, last)
    assert told.status == status
    assert told.story().splitlines()[-1] == line
    assert (told.failure is not None) == (status == "failed")
    assert (told.result is not None) == (status != "open")
    if status != "open":
        assert told.waits_for() == []


def test_a_run_without_events_is_open():
    """It was not looked at yet."""
    nothing = History(())
    assert (nothing.status, nothing.path, nothing.result, nothing.waits_for()) == (
        "open",
        [],
        None,
        [],
    )


def test_events_are_found_by_their_kind():
    """A kind that there is not is told with those that there are."""
    told = history(STARTED, NEXT)
    assert len(told.of("superstep_started")) == 2
    assert told[0].sequence == 1
    with pytest.raises(ValueError, match="there are run_started, superstep_started"):
        told.of("superstep")
