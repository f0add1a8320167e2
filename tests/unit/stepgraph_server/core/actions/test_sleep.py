"""Sleep: waits for a span or until a time, and hands on what it was entered with."""

from __future__ import annotations

import pytest

from stepgraph.v1 import task_pb2
from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Await, Done, Pause
from stepgraph_server.core.instants import SECOND
from tests.support.core_pieces import compiled, poll_of, state_of


@pytest.mark.parametrize(
    ("sleep", "expected"),
    [
        ("{duration: 90s}", Pause(label="sleep 90 s", span=90 * SECOND)),
        (
            "{until: '1970-01-01T00:00:02Z'}",
            Pause(label="sleep until 1970-01-01T00:00:02Z", until=2 * SECOND),
        ),
    ],
)
def test_it_waits_for_time(sleep: str, expected: Pause) -> None:
    step = poll_action(poll_of(state_of(compiled(f"nodes: [{{id: a, sleep: {sleep}}}]\n")), "a"))
    assert step == Await(effects=(expected,))


def test_it_gives_nothing_of_its_own() -> None:
    state = state_of(compiled("nodes: [{id: a, sleep: {duration: 1s}}]\n"))
    assert poll_action(poll_of(state, "a", None, task_pb2.TaskResult())) == Done()
