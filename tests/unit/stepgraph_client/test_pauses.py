"""How a program is stopped, and who may be."""

from __future__ import annotations

import pytest

from stepgraph.v1 import transition_pb2
from stepgraph_client.pauses import AnyOf, Pause, Told, inside_of_a_program
from tests.support.step_turns import tool_gave

PAUSE = Pause(transition=transition_pb2.Transition(), read=len)


def test_awaiting_stops_with_what_is_asked_for_and_gives_what_was_read():
    """The driver sees the pause itself, and sends results by their places."""
    awaiting = PAUSE.__await__()
    with inside_of_a_program():
        assert awaiting.send(None) is PAUSE
        results = {(0, 0): tool_gave(0, 0, 1), (0, 1): tool_gave(0, 1, 2)}
        with pytest.raises(StopIteration) as stopped:
            awaiting.send(Told(places=((0, 0), (0, 1)), ended=results))
    assert stopped.value.value == 2


def test_any_of_gives_what_was_told():
    """Who waits for some looks for itself at what has ended."""
    wait = AnyOf(transition=None, places=frozenset({(0, 0)}))
    told = Told(places=((0, 0),), ended={})
    awaiting = wait.__await__()
    with inside_of_a_program():
        assert awaiting.send(None) is wait
        with pytest.raises(StopIteration) as stopped:
            awaiting.send(told)
    assert stopped.value.value is told


async def test_outside_of_a_program_it_is_refused():
    """A coroutine that nobody drives as a program is told so, instead of hanging."""
    with pytest.raises(RuntimeError, match="not by tasks of asyncio"):
        await PAUSE


def test_the_mark_does_not_outlive_a_fault():
    """A program that raises leaves nothing behind."""
    with pytest.raises(KeyError), inside_of_a_program():
        raise KeyError
    with pytest.raises(RuntimeError):
        PAUSE.__await__().send(None)
