"""What a program sees, and what it is noted to have read."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1 import conversation_pb2, state_pb2, task_pb2, transition_pb2, value_pb2
from stepgraph_client.effects import EffectFailed
from stepgraph_client.step_context import ALL_VARIABLES, CONVERSATION, StepContext
from stepgraph_client.task_context import TaskContext, TaskHost
from stepgraph_client.task_results import text_block
from stepgraph_client.transitions import Goto
from stepgraph_client.values import from_value, to_value
from tests.support.step_turns import failed, tool_gave


class Values:
    """Stored values, of which each has the same content."""

    async def content(self, stored):
        return b"content"

    async def resolve(self, value):
        return value_pb2.Value(text="content")


@pytest.fixture
async def ctx():
    poll = transition_pb2.StepContext(
        run_id="r",
        node_id="n",
        program="p",
        input=to_value({"a": 1}),
        variables={"x": to_value(1), "y": to_value("two")},
        conversation=[conversation_pb2.Message(content=[text_block("hi")])],
    )
    task = task_pb2.Task(task_id="r/1/n/t0/poll", attempt=1)
    host = TaskHost(asyncio.get_running_loop(), Values())
    return StepContext(poll, TaskContext(task, host, lambda _: None))


async def test_it_knows_what_it_works_on(ctx):
    """Ids and the input, as Python has it, as it is, and as a type."""
    assert (ctx.run_id, ctx.node_id, ctx.program) == ("r", "n", "p")
    assert ctx.input == {"a": 1}
    assert ctx.input_value == to_value({"a": 1})
    assert ctx.input_as(dict[str, int]) == {"a": 1}
    assert ctx.task.task_id == "r/1/n/t0/poll"


async def test_reading_the_state_is_noted(ctx):
    """Each variable by its name, all of them at once, and the conversation."""
    assert ctx.variables["x"] == 1
    assert ctx.read == {"x"}
    assert ctx.variables.get("z") is None
    assert "y" in ctx.variables
    assert ctx.read == {"x", "y", "z"}
    assert dict(ctx.variables) == {"x": 1, "y": "two"}
    assert ALL_VARIABLES in ctx.read
    assert len(ctx.conversation) == 1
    assert CONVERSATION in ctx.read


async def test_looking_at_variables_makes_none(ctx):
    """A map of protobuf would make what it is asked for."""
    with pytest.raises(KeyError, match=r"does not ask for it.*there are x, y"):
        _ = ctx.variables["z"]
    assert list(ctx.variables) == ["x", "y"]
    assert len(ctx.variables) == 2


async def test_updates_of_one_turn_are_one(ctx):
    """The last word about a variable counts; flags add up."""
    assert ctx.take_update() is None
    ctx.update(variables={"a": 1, "b": 2}, delete_variables=["c"])
    ctx.update(variables={"c": 3}, delete_variables=["a", "d", "d"], messages=["hello"])
    decision = state_pb2.GraphDecision(direct_answer={"text": "x"})
    ctx.update(decision=decision, paradigm="", should_terminate=True)
    ctx.update()
    update = ctx.take_update()
    assert {name: from_value(value) for name, value in update.variables.items()} == {"b": 2, "c": 3}
    assert list(update.delete_variables) == ["a", "d"]
    assert update.messages[0].role == conversation_pb2.ROLE_USER
    assert update.decision == decision
    assert update.HasField("paradigm")
    assert update.should_terminate
    assert ctx.take_update() is None


async def test_values_that_are_stored_are_read(ctx):
    """By the attempt that runs."""
    stored = value_pb2.StoredValue(digest="sha256:0")
    assert await ctx.content(stored) == b"content"
    assert (await ctx.resolve(value_pb2.Value(stored=stored))).text == "content"
    block = conversation_pb2.TextBlock(stored=stored)
    assert await ctx.text_of(block) == "content"


async def test_all_and_settled_read_in_order(ctx):
    """Each result is read by its own effect."""
    both = ctx.tool("a"), ctx.tool("b").returning(int)
    results = (tool_gave(0, 0, "x"), tool_gave(0, 1, 2))
    assert ctx.all(*both).read(results) == ["x", 2]
    with pytest.raises(EffectFailed):
        ctx.all(*both).read((tool_gave(0, 0, "x"), failed(0, 1)))
    _, bad = ctx.settled(*both).read((tool_gave(0, 0, "x"), failed(0, 1)))
    assert isinstance(bad, EffectFailed)


async def test_a_goto_ends_it_where_it_is(ctx):
    """It never returns."""
    with pytest.raises(Goto) as caught:
        ctx.goto("billing", 7)
    assert from_value(caught.value.ending.transition.goto.carry) == 7
