"""Programs between polls: which one a poll gets, and what is given up."""

from __future__ import annotations

import logging

import pytest

from stepgraph.v1 import transition_pb2
from stepgraph_client._step_holding import HeldPrograms
from stepgraph_client.task_errors import TurnsNotHeld
from stepgraph_client.transitions import Goto, goto

TURN = transition_pb2.StepTurn()


class Program:
    """One that notes its end."""

    def __init__(self, turn, error=None):
        self.turn = turn
        self.closed = 0
        self.error = error

    def close(self):
        self.closed += 1
        if self.error:
            raise self.error


def poll(turn, *, history=0, start=0):
    return transition_pb2.StepContext(turn=turn, history=[TURN] * history, history_start=start)


def keep(held, program, key="r/1/n", reply_bytes=0):
    _, lease = held.take(f"{key}/t0/poll", poll(0))
    held.keep(lease, program, reply_bytes)


@pytest.fixture
def held():
    return HeldPrograms(max_held=2, max_bytes=1_000)


def test_the_first_poll_begins(held):
    """There is nothing to take up."""
    program, _ = held.take("r/1/n/t0/poll", poll(0))
    assert program is None


def test_a_poll_without_history_takes_what_is_held(held):
    """The program itself, once: nobody else gets it meanwhile."""
    program = Program(1)
    keep(held, program)
    assert held.take("r/1/n/t1/poll", poll(1, start=1))[0] is program
    with pytest.raises(TurnsNotHeld, match="before 1"):
        held.take("r/1/n/t1/poll", poll(1, start=1))


def test_a_poll_with_history_begins_anew(held):
    """What is held may have answered something that was not recorded."""
    program = Program(1)
    keep(held, program)
    assert held.take("r/1/n/t1/poll", poll(1, history=1))[0] is None
    assert program.closed == 1


def test_a_program_at_another_turn_is_not_it(held):
    """Its last answer was not recorded."""
    program = Program(2)
    keep(held, program)
    with pytest.raises(TurnsNotHeld):
        held.take("r/1/n/t1/poll", poll(1, start=1))
    assert program.closed == 1


def test_half_a_history_is_not_enough(held):
    """Turns that are neither held nor sent can't be guessed."""
    with pytest.raises(TurnsNotHeld):
        held.take("r/1/n/t3/poll", poll(3, history=1, start=2))
    with pytest.raises(TurnsNotHeld):
        held.take("r/1/n/t3/poll", poll(3, history=2))


def test_only_the_last_attempt_keeps_its_program(held):
    """One that was given up by the server may end late; what it has is not what was recorded."""
    late, last = Program(1), Program(1)
    _, first = held.take("r/1/n/t0/poll", poll(0))
    _, second = held.take("r/1/n/t0/poll", poll(0))
    held.keep(second, last, 0)
    held.keep(first, late, 0)
    assert late.closed == 1
    assert held.take("r/1/n/t1/poll", poll(1, start=1))[0] is last


def test_the_oldest_goes_first(held):
    """By count, in the order of their last polls."""
    programs = [Program(1) for _ in range(3)]
    for index, program in enumerate(programs):
        keep(held, program, f"r{index}/1/n")
    assert [program.closed for program in programs] == [1, 0, 0]
    assert len(held) == 2


def test_bytes_are_bounded_too(held):
    """What programs may remember counts, over all of their turns."""
    first, second = Program(1), Program(1)
    keep(held, first, "r1/1/n", 600)
    keep(held, second, "r2/1/n", 600)
    assert (first.closed, second.closed) == (1, 0)
    _, lease = held.take("r2/1/n/t1/poll", poll(1, start=1))
    held.keep(lease, second, 600)
    assert second.closed == 1
    assert len(held) == 0


def test_an_end_that_raises_is_told_and_hurts_nobody(held, caplog):
    """A program may await in its `finally`, or go somewhere."""
    for error in (RuntimeError("ignored GeneratorExit"), Goto(goto("n"))):
        _, lease = held.take("r/1/n/t0/poll", poll(0))
        with caplog.at_level(logging.WARNING):
            held.give_up(lease, Program(1, error))
    assert [record.action for record in caplog.records] == ["program.close_failed"] * 2
    assert len(held) == 0
