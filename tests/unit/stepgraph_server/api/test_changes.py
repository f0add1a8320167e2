"""What changes something is carried out whole, whatever becomes of its caller."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph_server.api.changes import Changes
from stepgraph_server.core.errors import Refused


async def test_the_caller_gets_what_the_change_returns():
    async def change():
        return 5

    async with Changes(10) as changes:
        assert await changes.carry_out(change) == 5
        assert changes.pending == 0


async def test_the_caller_gets_what_the_change_raises_and_other_changes_go_on():
    async def fail():
        raise Refused("RUN_NOT_FOUND", "no")

    async def succeed():
        await asyncio.sleep(0.01)
        return "done"

    async with Changes(10) as changes, asyncio.TaskGroup() as group:
        other = group.create_task(changes.carry_out(succeed))
        await asyncio.sleep(0)
        with pytest.raises(Refused):
            await changes.carry_out(fail)

    assert other.result() == "done"


async def test_a_change_goes_on_when_its_caller_is_cancelled():
    done = []

    async def change():
        await asyncio.sleep(0.01)
        done.append(True)

    async with Changes(10) as changes:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(changes.carry_out(change), 0.001)
        assert not done
        assert changes.pending == 1

    assert done, "leaving waits for what was begun"


async def test_a_fault_after_the_caller_has_gone_is_logged_and_a_refusal_is_not(caplog):
    async def fail(error):
        await asyncio.sleep(0.005)
        raise error

    async with Changes(10) as changes:
        for error in (ValueError("a fault"), Refused("RUN_ENDED", "a refusal")):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(changes.carry_out(lambda error=error: fail(error)), 0.001)
        await asyncio.sleep(0.02)

    assert "a fault" in caplog.text
    assert "a refusal" not in caplog.text


async def test_too_many_changes_are_refused_before_they_begin():
    begun = []

    async def change():
        begun.append(True)
        await asyncio.sleep(0.01)

    async with Changes(1) as changes, asyncio.TaskGroup() as group:
        group.create_task(changes.carry_out(change))
        await asyncio.sleep(0)
        with pytest.raises(Refused) as caught:
            await changes.carry_out(change)

    assert caught.value.reason == "OVERLOADED"
    assert len(begun) == 1


async def test_what_takes_too_long_is_given_up_when_it_is_to_settle():
    async def for_ever():
        await asyncio.Event().wait()

    async with Changes(10) as changes:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(changes.carry_out(for_ever), 0.001)
        await changes.settle(0.001)

    assert changes.pending == 0


async def test_a_change_that_is_given_up_before_it_runs_does_not_keep_its_caller():
    async def never():
        raise AssertionError

    async with Changes(10) as changes:
        waiting = asyncio.create_task(changes.carry_out(never))
        asyncio.get_running_loop().call_soon(lambda: [task.cancel() for task in changes._tasks])
        await asyncio.wait([waiting], timeout=5)

    assert waiting.cancelled()


async def test_a_fault_that_comes_just_as_its_caller_goes_is_logged(caplog):
    waiting: asyncio.Task[None]

    async def fail():
        asyncio.get_running_loop().call_soon(waiting.cancel)
        raise RuntimeError

    async with Changes(10) as changes:
        waiting = asyncio.create_task(changes.carry_out(fail))
        await asyncio.wait([waiting], timeout=5)

    assert waiting.cancelled()
    assert "A change failed after its caller had gone" in caplog.text


async def test_there_may_be_nothing_to_settle():
    async with Changes(10) as changes:
        await changes.settle(60)
