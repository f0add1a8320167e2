"""How spawned work comes together: in spec order, whoever ended first, and once."""

from __future__ import annotations

import pytest

from stepgraph.v1 import failure_pb2, policy_pb2, transition_pb2
from stepgraph_server.core.spawn import ALL, ALL_SETTLED, FIRST, Spawn
from tests.support.core_pieces import text

BROKEN = failure_pb2.Failure(code="BROKEN", message="no luck")


def _spawn(join: policy_pb2.JoinPolicy.ValueType, *, count: int = 3, cap: int = 0) -> Spawn:
    wanted = transition_pb2.Transition.Spawn(join=join, max_concurrency=cap)
    for _ in range(count):
        wanted.specs.add().body.program = "p"
    spawn = Spawn.of(4, wanted)
    spawn.started = spawn.live = count
    return spawn


@pytest.mark.parametrize("join", [ALL, policy_pb2.JOIN_POLICY_UNSPECIFIED])
def test_all_is_decided_by_the_last_success_or_the_first_failure(
    join: policy_pb2.JoinPolicy.ValueType,
) -> None:
    spawn = _spawn(join)
    spawn.end(2, text("c"), "n")
    assert not spawn.decided
    spawn.end(0, BROKEN, "n")
    assert spawn.decided
    assert spawn.failure is not None
    assert (spawn.failure.code, spawn.failure.details["index"]) == ("BROKEN", "0")
    assert spawn.failure.causes[0] == BROKEN


def test_all_settled_is_decided_by_the_last_whatever_it_is() -> None:
    spawn = _spawn(ALL_SETTLED)
    for index in (1, 2, 0):
        assert not spawn.decided
        spawn.end(index, BROKEN, "n")
    assert spawn.decided
    assert spawn.failure is None


def test_first_is_decided_by_the_first_success_and_the_rest_is_cancelled() -> None:
    spawn = _spawn(FIRST)
    spawn.end(1, BROKEN, "n")
    spawn.end(2, text("c"), "n")
    assert spawn.decided
    assert spawn.cancelled() == [0]
    cancelled = spawn.outcomes[0]
    assert isinstance(cancelled, failure_pb2.Failure)
    assert cancelled.code == "CANCELLED"
    assert (spawn.left, spawn.live) == (0, 0)


def test_of_first_without_a_success_the_causes_are_in_spec_order() -> None:
    spawn = _spawn(FIRST, count=2)
    spawn.end(1, failure_pb2.Failure(code="TWO"), "n")
    spawn.end(0, failure_pb2.Failure(code="ONE"), "n")
    assert spawn.failure is not None
    assert [cause.code for cause in spawn.failure.causes] == ["ONE", "TWO"]


def test_a_cap_lets_one_begin_for_each_that_has_ended() -> None:
    spawn = _spawn(ALL_SETTLED, cap=2)
    spawn.started = spawn.live = 2
    assert not spawn.can_start
    spawn.end(0, BROKEN, "n")
    assert spawn.can_start
    spawn.started = 3
    assert not spawn.can_start


def test_over_nothing_it_has_ended() -> None:
    spawn = _spawn(ALL, count=0)
    assert spawn.decided
    assert not spawn.can_start


def test_what_has_no_name_is_called_by_its_position() -> None:
    spawn = _spawn(ALL, count=2)
    spawn.wanted.specs[0].label = ""
    assert [spawn.label(index) for index in range(2)] == ["", "1"]
