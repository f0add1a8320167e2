"""Which canned result is next, and what it means."""

from __future__ import annotations

import pytest

from stepgraph.v1 import llm_pb2, run_pb2, task_pb2, transition_pb2
from stepgraph_client import Failed, done
from stepgraph_client.effects import await_effects, tool
from stepgraph_client.values import to_value
from stepgraph_testing.canned import Canned, NoResult, asked_of, child_input, offers, result_of
from stepgraph_testing.replies import call, calls

Input = task_pb2.TaskInput


def test_a_label_comes_before_a_node():
    """What is said more exactly counts."""
    canned = Canned({"tool t": "label", "n": "node"})
    assert canned.next("tool t", "n", None) == "label"
    assert canned.next("tool u", "n", None) == "node"
    assert "n" in canned
    with pytest.raises(NoResult, match="'tool u' or 'm'"):
        canned.next("tool u", "m", None)


def test_lists_end_functions_and_single_things_don_t():
    """Each key counts by itself."""
    canned = Canned({"a": [1, 2], "b": 5, "c": lambda asked: asked * 2})
    assert [canned.next("", "a", None) for _ in range(2)] == [1, 2]
    with pytest.raises(NoResult, match="has 2 items"):
        canned.next("", "a", None)
    assert [canned.next("", "b", None) for _ in range(3)] == [5, 5, 5]
    assert canned.next("", "c", 4) == 8


INPUTS = {
    "llm": Input(llm=llm_pb2.LlmRequest(model="m")),
    "tool": Input(tool=Input.Tool(name="t", args='{"a": 1}')),
    "agent": Input(agent=Input.Agent(agent_kind="k", task="do")),
    "condition": Input(condition=Input.Condition(name="c")),
    "effect": Input(effect=Input.Effect(kind="e", payload=to_value([1]))),
    "step": Input(step=transition_pb2.StepContext(program="p")),
}


def test_every_kind_of_task_is_asked_and_answered():
    """As functions of executors are."""
    asked = {kind: asked_of(given) for kind, given in INPUTS.items()}
    assert asked["llm"].model == "m"
    assert (asked["tool"], asked["agent"], asked["effect"]) == ({"a": 1}, "do", [1])
    assert (asked["condition"].name, asked["step"].program) == ("c", "p")
    assert asked_of(Input()) is None
    for kind, given in INPUTS.items():
        result = result_of(given, True if kind == "condition" else "x")
        assert result.WhichOneof("kind") == kind
    with pytest.raises(Failed, match="True or False"):
        result_of(INPUTS["condition"], "x")
    with pytest.raises(AssertionError):
        result_of(Input(), "x")


def test_a_child_run_is_asked_with_what_it_starts_with():
    """Its input, or its variables."""
    assert child_input(run_pb2.RunInput(value=to_value([1]))) == [1]
    assert child_input(run_pb2.RunInput(variables={"a": to_value(1)})) == {"a": 1}


@pytest.mark.parametrize(
    "said",
    [
        tool("t"),
        await_effects(tool("t")),
        await_effects(tool("t")).transition,
        transition_pb2.StepReply(transition=await_effects(tool("t")).transition),
    ],
)
def test_a_step_is_answered_in_every_form(said):
    """What a program may return."""
    reply = result_of(INPUTS["step"], said).step
    assert reply.transition.await_effects.effects[0].tool.name == "t"
    assert result_of(INPUTS["step"], done(1)).step.transition.HasField("done")
    assert result_of(INPUTS["step"], 1).step.transition.done.value == to_value(1)


def test_tools_are_offered_that_anything_names():
    """Definitions and functions as they are, others by their names alone."""

    def look(path: str) -> str:
        """Look."""
        return path

    found = offers(
        {"tool a": 1, "think": [calls(call("b")), "x"], "n": calls(call("a"))},
        [look, llm_pb2.ToolDefinition(name="a", description="A")],
    )
    assert [each.definition.name for each in found] == ["a", "b", "look"]
    assert found[0].definition.description == "A"
    assert len({each.digest for each in found}) == 3
