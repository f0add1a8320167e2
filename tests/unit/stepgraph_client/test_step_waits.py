"""Whether a program can go on, with which results, and what is answered if it can't."""

from __future__ import annotations

from stepgraph.v1 import transition_pb2
from stepgraph_client import effects, program
from stepgraph_client.effects import await_effects
from stepgraph_client.pauses import AnyOf
from stepgraph_client.step_waits import Waits, wait_on
from stepgraph_client.transitions import ask, spawn
from tests.support.step_turns import answered, node_gave, tool_gave

ALL = transition_pb2.WAKE_POLICY_ALL
EACH = transition_pb2.WAKE_POLICY_EACH


def pause(*names, each=False):
    return await_effects(*(effects.tool(name) for name in names), each=each)


def test_nothing_is_told_to_a_program_that_has_not_begun():
    """The first turn brings no results."""
    assert Waits().ready() is None


def test_a_pause_waits_for_all_and_is_told_in_order():
    """In the order in which it was asked, not in that in which things end."""
    waits = Waits()
    assert waits.ask(pause("a", "b"), 0).await_effects.wake == ALL
    waits.tell([tool_gave(0, 1, "b")])
    assert waits.ready() is None
    waits.tell([tool_gave(0, 0, "a")])
    assert waits.ready().places == ((0, 0), (0, 1))
    assert waits.ready() is None


def test_any_of_waits_for_one():
    """What has ended is told once; what is left can be waited for later."""
    waits = Waits()
    asked = AnyOf(transition=pause("a", "b", each=True).transition, places=None)
    waits.ask(asked, 0)
    waits.tell([tool_gave(0, 1, "b")])
    told = waits.ready()
    assert told.places == ((0, 0), (0, 1))
    assert list(told.ended) == [(0, 1)]
    again = AnyOf(transition=None, places=frozenset({(0, 0)}))
    assert waits.ask(again, 1) == wait_on()
    waits.tell([tool_gave(0, 0, "a")])
    assert list(waits.ready().ended) == [(0, 0)]


def test_leftovers_do_not_hold_up_what_comes_after():
    """While something goes on that nobody waits for, whatever ends wakes the program."""
    waits = Waits()
    waits.ask(AnyOf(transition=pause("a", "b", each=True).transition, places=None), 0)
    waits.tell([tool_gave(0, 0, "a")])
    waits.ready()
    assert waits.ask(pause("c"), 1).await_effects.wake == EACH
    waits.tell([tool_gave(0, 1, "b")])
    assert waits.ready() is None
    waits.tell([tool_gave(1, 0, "c")])
    assert list(waits.ready().ended) == [(1, 0)]
    # And what has ended meanwhile is there at once.
    assert waits.ask(AnyOf(transition=None, places=frozenset({(0, 1)})), 2) is None
    assert list(waits.ready().ended) == [(0, 1)]
    assert waits.ask(pause("d"), 2).await_effects.wake == ALL


def test_spawns_and_questions_have_places_too():
    """One for each spec, one for an answer; a leftover changes nothing about them."""
    waits = Waits()
    waits.ask(AnyOf(transition=pause("a", "b", each=True).transition, places=None), 0)
    waits.tell([tool_gave(0, 0, "a")])
    waits.ready()
    waits.ask(spawn([program("p"), program("p")]), 1)
    waits.tell([node_gave(1, 0, 1), node_gave(1, 1, 2)])
    assert waits.ready().places == ((1, 0), (1, 1))
    assert waits.ask(ask("ok?"), 2).HasField("suspend")
    waits.tell([answered(2, "yes")])
    assert waits.ready().places == ((2, 0),)


def test_a_bare_transition_is_told_whatever_comes():
    """As the poll has it, also under EACH."""
    waits = Waits()
    transition = pause("a", "b", each=True).transition
    assert waits.ask(transition, 0) is transition
    waits.tell([tool_gave(0, 1, "b")])
    assert waits.ready().places == ((0, 1),)


def test_waiting_for_nothing_takes_no_turn():
    """Told at once, with nothing."""
    waits = Waits()
    assert waits.ask(pause(), 0) is None
    assert waits.ready().places == ()


def test_only_pauses_are_ours():
    """Everything else that a coroutine yields belongs to the event loop."""
    assert Waits.is_ours(pause("a"))
    assert Waits.is_ours(AnyOf(transition=None, places=None))
    assert not Waits.is_ours(None)
