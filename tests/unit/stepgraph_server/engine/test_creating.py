"""Runs that continue one that has ended, and runs with a start delay. How others are started is in test_engine.py."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph.v1 import interrupt_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel
from tests.support.engine_executor import Executor, succeeded
from tests.support.engine_rig import MAX_START_BYTES, NAMESPACE, rig, work
from tests.support.engine_time import in_virtual_time
from tests.support.graphs import graph


@in_virtual_time
async def test_a_run_takes_over_what_another_ended_with():
    """The next turn of a chat: conversation, variables, metadata and paradigm; what the server wrote about nodes is not."""
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        initial = {
            "metadata": {"user": "anna"},
            "active_paradigm": "",
            "conversation": {"id": "chat", "metadata": {"topic": "x"}},
            "variables": {"kept": {"text": "1"}, "_approval": {"text": "abort"}},
        }
        await it.start(work(), initial_state=initial)
        assert await it.settle() == "COMPLETED"
        spoken = {"messages": [{"role": "ROLE_USER", "content": [{"text": {"text": "and now?"}}]}]}
        await it.start(work(), "r2", continue_from="r1", input=spoken)
        assert await it.settle("r2") == "COMPLETED"
        state = await it.engine.run_state(NAMESPACE, "r2", 1)
        texts = ["".join(b.text.text for b in message.content) for message in state.messages]
        assert texts == ["done", "and now?"]
        assert dict(state.variables) == {"kept": state.variables["kept"]}
        rest = state.rest()
        assert rest.conversation.id == "chat"
        assert dict(rest.metadata) == {"user": "anna"}


@in_virtual_time
async def test_only_a_run_that_has_ended_can_be_continued():
    """However it ended."""
    async with rig() as it:
        await it.start(work())
        with pytest.raises(Refused, match="'r1' is RUNNING; only one that has ended") as refused:
            await it.start(work(), "r2", continue_from="r1")
        assert refused.value.reason == "RUN_NOT_ENDED"
        with pytest.raises(Refused, match="RUN_NOT_FOUND"):
            await it.start(work(), "r2", continue_from="r9")
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason=""), None)
        await it.settle()
        await it.start(work(), "r2", continue_from="r1")
        assert it.status("r2") == "RUNNING"


@in_virtual_time
async def test_what_is_too_large_to_begin_with_is_refused():
    """It stands in one event, which a client with default limits must be able to read."""
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        large = {"variables": {"x": {"text": "x" * (MAX_START_BYTES + 1)}}}
        await it.start(work(), input=large)
        assert await it.settle() == "COMPLETED"
        with pytest.raises(Refused, match="store large values") as refused:
            await it.start(work(), "r2", continue_from="r1")
        assert refused.value.reason == "PAYLOAD_TOO_LARGE"
        assert refused.value.metadata["limit_bytes"] == str(MAX_START_BYTES)


@in_virtual_time
async def test_a_delayed_run_costs_no_memory_and_starts_by_itself():
    """Until then it is PENDING."""
    async with rig() as it:
        await Executor(it, script=succeeded).connect()
        await it.start(work(), delay={"seconds": 3600})
        assert await it.settle() == "PENDING"
        assert it.runner.live_count == 0
        await asyncio.sleep(3599)
        assert await it.settle() == "PENDING"
        await asyncio.sleep(2)
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_why_a_call_has_no_result_is_taken_over_as_one():
    """The run that continues has no memory of what a person said in the other."""
    asking = {"role": "ROLE_ASSISTANT", "content": [{"tool_call": {"id": "c1", "name": "pay"}}]}
    initial = {
        "conversation": {"messages": [asking]},
        "parsed_decision": {"tool_calls": {"count": 1, "calls": [{"id": "c1", "name": "pay"}]}},
    }
    pays = graph({"a": {"interrupt": True, "action": {"tool_call": {"tool_name": "pay"}}}})
    async with rig() as it:
        await it.start(pays, initial_state=initial)
        await it.settle()
        _, [wait] = await it.engine.explain_run(NAMESPACE, "r1")
        no = interrupt_pb2.InterruptAnswer(abort=interrupt_pb2.InterruptAnswer.Abort(reason="dear"))
        await it.engine.answer(NAMESPACE, wait.question.interrupt_id, no, "anna", None)
        assert await it.settle() == "CANCELLED"
        await it.start(work(), "r2", continue_from="r1")
        state = await it.engine.run_state(NAMESPACE, "r2", 1)
        told = state.messages[1].content[0].tool_result
        assert (told.call_id, told.is_error) == ("c1", True)
        assert told.content[0].text.text == "A person did not approve this call: dear"
