"""Steps are values."""

from __future__ import annotations

from stepgraph_server.core.actions.step import Await, Done


def test_steps_that_say_the_same_are_equal() -> None:
    assert Done() == Done()
    assert Await(effects=()) == Await(effects=())
    assert Done(decides=True) != Done()
