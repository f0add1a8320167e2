"""What transitions are called, and where two of them differ."""

from __future__ import annotations

import pytest

from stepgraph.v1 import transition_pb2
from stepgraph_client import done, effects, goto, node, program
from stepgraph_client.effects import await_effects
from stepgraph_client.step_labels import difference, label
from stepgraph_client.transitions import ask, external, signal, spawn


def awaiting(*names):
    return await_effects(*(effects.tool(name) for name in names)).transition


@pytest.mark.parametrize(
    ("transition", "expected"),
    [
        (
            await_effects(
                effects.llm("secret", model="m"),
                effects.tool("t", key="secret"),
                effects.graph("g@2", "secret"),
                effects.sleep("1s"),
                effects.custom("mail", "secret"),
                effects.delegate("coder", "secret"),
                each=True,
            ).transition,
            "await each llm m, tool t, graph g@2, sleep, effect mail, agent coder",
        ),
        (await_effects(effects.llm("x")).transition, "await llm"),
        (
            spawn([node("n", "secret"), program("p", "secret", label="secret")]).transition,
            "spawn all node n, program p",
        ),
        (goto("billing", "secret").transition, "goto billing"),
        (done("secret").transition, "done"),
        (ask("secret").transition, "suspend human"),
        (external("secret").transition, "suspend external"),
        (signal("go", correlation="secret").transition, "suspend signal go"),
        (transition_pb2.Transition(), "nothing"),
        (
            transition_pb2.Transition(
                await_effects=transition_pb2.Transition.Await(effects=[transition_pb2.Effect()])
            ),
            "await an unknown effect",
        ),
        (
            transition_pb2.Transition(suspend=transition_pb2.Transition.Suspend()),
            "suspend for nothing",
        ),
    ],
)
def test_labels_have_names_and_no_payloads(transition, expected):
    """What a program works on never shows."""
    assert label(transition) == expected


def test_long_labels_are_cut():
    """A turn may have ten thousand effects."""
    assert label(awaiting(*"abcdefghij")).endswith("tool h, … and 2 more")


def test_the_same_is_no_difference_whatever_it_works_on():
    """Only kinds and names are compared."""
    one = await_effects(effects.tool("t", a=1)).transition
    other = await_effects(effects.tool("t", a=2)).transition
    assert difference(one, other) is None


def test_a_difference_is_shown_from_where_it_is():
    """Far behind in a long list it is not hidden by the cut."""
    long = ["same"] * 100
    recorded, replayed = difference(awaiting(*long, "a", "b"), awaiting(*long, "a", "c", "d"))
    assert recorded == "await … from the 102th on: tool b"
    assert replayed == "await … from the 102th on: tool c, tool d"
    assert difference(awaiting(*long, "a"), awaiting(*long)) == (
        "await … from the 101th on: tool a",
        "await … from the 101th on: nothing",
    )


def test_kinds_differ():
    """An end in place of an effect, another wake, another target."""
    assert difference(awaiting("a"), done().transition) == ("await tool a", "done")
    assert difference(goto("a").transition, goto("b").transition) == ("goto a", "goto b")
