"""What a function may know of its task, and what it may show."""

from __future__ import annotations

import asyncio
import threading

import pytest

from stepgraph.v1 import conversation_pb2, task_pb2, value_pb2
from stepgraph_client.task_context import MAX_CUSTOM_BYTES, ConditionContext, TaskContext, TaskHost

STORED = value_pb2.StoredValue(digest="sha256:0", form=value_pb2.VALUE_FORM_TEXT)


class Values:
    """Stored values of which there is one."""

    async def content(self, stored):
        assert stored == STORED
        return b"content"

    async def resolve(self, value):
        return value_pb2.Value(text="content") if value.HasField("stored") else value


class Desk:
    def __init__(self, **fields):
        self.shown = []
        self.task = task_pb2.Task(task_id="r1/1/n/t0/e0", attempt=2, **fields)
        self.host = TaskHost(asyncio.get_running_loop(), Values())

    def context(self, kind=TaskContext):
        return kind(self.task, self.host, self.shown.append)


async def test_it_knows_its_task():
    ctx = Desk(node_id="n", idempotency_key="k", traceparent="t", tracestate="s", tries=3).context()
    assert (ctx.run_id, ctx.node_id, ctx.task_id) == ("r1", "n", "r1/1/n/t0/e0")
    assert (ctx.attempt, ctx.tries, ctx.idempotency_key) == (2, 3, "k")
    assert (ctx.traceparent, ctx.tracestate) == ("t", "s")


async def test_it_knows_its_deadline():
    loop = asyncio.get_running_loop()
    ctx = Desk(limits={"run": {"seconds": 10}}).context()
    assert ctx.deadline == pytest.approx(loop.time() + 10, abs=1)
    assert 9 < ctx.time_left() <= 10
    endless = Desk().context()
    assert endless.deadline is None
    assert endless.time_left() is None


async def test_it_shows_deltas_of_every_kind():
    desk = Desk()
    ctx = desk.context()
    ctx.text_delta("he")
    await ctx.progress_text("llo")
    ctx.thinking_delta("hm")
    ctx.tool_args_delta(1, '{"a"', tool_name="add")
    ctx.progress({"done": 0.5})
    kinds = [each.WhichOneof("kind") for each in desk.shown]
    assert kinds == ["text", "text", "thinking", "tool_args", "custom"]
    assert ctx.shown_text == "hello"
    assert desk.shown[3].tool_args == task_pb2.TaskProgress.ToolArgsDelta(
        call_index=1, tool_name="add", args='{"a"'
    )
    assert desk.shown[4].custom.value.json == '{"done":0.5}'


async def test_a_mere_sign_of_life_is_nothing_to_show():
    desk = Desk()
    desk.context().alive()
    assert desk.shown == [None]


async def test_custom_progress_is_bounded():
    ctx = Desk().context()
    with pytest.raises(ValueError, match=str(MAX_CUSTOM_BYTES)):
        ctx.progress("x" * MAX_CUSTOM_BYTES)


async def test_a_function_in_a_thread_shows_on_the_loop():
    desk = Desk()
    seen = []
    ctx = TaskContext(desk.task, desk.host, lambda _: seen.append(threading.get_ident()))
    await asyncio.to_thread(ctx.text_delta, "x")
    await asyncio.sleep(0)
    assert seen == [threading.get_ident()]


async def test_it_says_when_to_stop():
    ctx = Desk().context()
    assert not ctx.cancelled
    assert ctx.cancel_reason == ""
    ctx.raise_if_cancelled()
    ctx.cancel("enough")
    assert ctx.cancelled
    assert ctx.cancel_reason == "enough"
    with pytest.raises(asyncio.CancelledError):
        ctx.raise_if_cancelled()


async def test_stored_contents_are_read_when_somebody_looks():
    ctx = Desk().context()
    assert await ctx.content(STORED) == b"content"
    assert await ctx.resolve(value_pb2.Value(stored=STORED)) == value_pb2.Value(text="content")
    assert await ctx.text_of(conversation_pb2.TextBlock(stored=STORED)) == "content"
    assert await ctx.text_of(conversation_pb2.TextBlock(text="inline")) == "inline"


async def test_a_function_in_a_thread_can_wait_for_the_loop():
    ctx = Desk().context()
    assert await asyncio.to_thread(lambda: ctx.wait(ctx.content(STORED))) == b"content"
    with pytest.raises(RuntimeError, match="use `await`"):
        ctx.wait(ctx.content(STORED))


async def test_a_condition_sees_what_its_node_sees():
    condition = task_pb2.TaskInput.Condition(
        name="is_safe",
        description="Is it?",
        variables={"x": value_pb2.Value(json="1")},
        last_result=value_pb2.Value(text="r"),
        last_error={"code": "E"},
        decision={"direct_answer": {"text": "a"}},
        paradigm="plan",
        iterations=3,
    )
    ctx = Desk(input={"condition": condition}).context(ConditionContext)
    assert (ctx.name, ctx.description, ctx.paradigm, ctx.iterations) == (
        *("is_safe", "Is it?", "plan", 3),
    )
    assert ctx.variables["x"].json == "1"
    assert ctx.last_result.text == "r"
    assert ctx.last_error.code == "E"
    assert ctx.decision.direct_answer.text == "a"


async def test_a_condition_knows_what_is_absent():
    ctx = Desk(input={"condition": {"name": "c"}}).context(ConditionContext)
    assert ctx.last_result is None
    assert ctx.last_error is None
    assert ctx.decision is None
    assert dict(ctx.variables) == {}
