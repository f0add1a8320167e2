"""Whatever happens to streams: no result is lost, none is recorded twice, and nothing is done twice without need."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph_server.core.instants import SECOND, Span
from tests.support.session_pair import GRACE, SessionPair

# Whole exchanges beside single moves, or hardly any example would get past the first hello.
STEPS = st.one_of(
    *(st.just((name, 0)) for name in ("assign", "settle", "reconnect", "lose_stream")),
    *(st.just((name, 0)) for name in ("send_up", "send_down", "deliver_up", "deliver_down")),
    st.tuples(st.just("finish"), st.integers(0, 7)),
    *(st.just((name, 0)) for name in ("connect", "short_pause", "long_pause")),
)


def play(steps):
    pair = SessionPair()
    pair.connect()
    pair.settle()
    names = (f"r{number}/t" for number in range(10_000))
    for name, number in steps:
        match name:
            case "assign":
                if not pair.assign():
                    pair.assign(next(names))
            case "reconnect":
                pair.connect()
                pair.settle()
            case "finish":
                pair.finish(number)
            case "short_pause":
                pair.pass_time(Span(1 * SECOND))
            case "long_pause":
                pair.pass_time(GRACE)
            case _:
                getattr(pair, name)()
    return pair


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=80))
def test_every_task_is_recorded_exactly_once(steps):
    pair = play(steps)
    pair.heal()
    assert pair.desk.waiting == []
    for task_id, task in pair.desk.tasks.items():
        assert task.times_recorded == 1, task_id
        assert f"result of {task_id}#{task.attempt}".encode() in task.recorded
    assert pair.executor.held == 0
    assert pair.executor.unacknowledged == 0
    assert [seat.in_flight for seat in pair.registry.seats()] == [0]


@settings(max_examples=300)
@given(st.lists(STEPS, max_size=80))
def test_no_attempt_is_started_twice(steps):
    pair = play(steps)
    pair.heal()
    assert set(pair.started.values()) <= {1}


@settings(max_examples=300)
@given(st.lists(STEPS.filter(lambda step: step[0] != "long_pause"), max_size=80))
def test_a_stream_that_comes_back_in_time_repeats_nothing_that_has_arrived(steps):
    pair = play(steps)
    pair.heal()
    by_task = {}
    for task_id, attempt in pair.started:
        by_task.setdefault(task_id, []).append(attempt)
    assert all(len(attempts) == 1 for attempts in by_task.values()), by_task


def test_a_result_survives_every_place_where_the_stream_can_break():
    for frames_before_the_break in range(12):
        pair = SessionPair()
        pair.connect()
        pair.settle()
        pair.assign("r/t")
        moves = [
            *(pair.send_down, pair.deliver_down, pair.send_up, pair.deliver_up),
            lambda pair=pair: pair.finish(0),
            *(pair.send_up, pair.deliver_up, pair.send_down, pair.deliver_down),
        ]
        for move in moves[:frames_before_the_break]:
            move()
        pair.lose_stream()
        pair.heal()
        assert pair.desk.tasks["r/t"].times_recorded == 1
        assert sum(pair.started.values()) == 1, frames_before_the_break
