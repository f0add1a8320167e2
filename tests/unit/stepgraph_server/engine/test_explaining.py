"""What a run waits for, as it is told."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel, Pause
from stepgraph_server.engine import explaining
from stepgraph_server.engine.explaining import ConnectedExecutors, waits_of
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, failed, succeeded
from tests.support.engine_rig import NAMESPACE, question, rig, wide, work
from tests.support.engine_store import unavailable
from tests.support.engine_time import in_virtual_time, turns
from tests.support.graphs import graph


async def told(it, run_id="r1"):
    run, waits = await it.engine.explain_run(NAMESPACE, run_id)
    return run, waits


async def words(it, run_id="r1"):
    return [wait.description for wait in (await told(it, run_id))[1]]


@in_virtual_time
async def test_a_missing_executor_is_named_with_what_it_must_do():
    """Also its labels, if the run asks for some; and until when the task waits."""
    async with rig() as it:
        await it.start(work(), selector={"zone": "east"})
        run, [wait] = await told(it)
        assert run.run_id == "r1"
        assert wait.task_id == "1/a/t0/e0"
        assert wait.description == (
            "agent worker waits for an executor: none that is connected can do agent worker "
            "with the labels zone=east; connect one"
        )
        assert wait.requirement.agent.kind == "worker"
        assert (wait.capable_executors, wait.HasField("due_time")) == (0, True)


@in_virtual_time
async def test_where_a_task_is_is_told():
    """At an executor, in a queue behind others, or in front of its next try."""
    async with rig() as it:
        executor = await Executor(it, max_in_flight=1).connect()
        await it.start(wide(2))
        await it.settle()
        assert await words(it) == [
            "agent worker runs at executor e1, attempt 1",
            "agent worker waits for room at one executor that can do it",
        ]
        [task] = executor.running.values()
        executor.report(failed(task))
        await it.settle()
        _, waits = await told(it)
        again = next(wait for wait in waits if "again" in wait.description)
        assert again.description == "agent worker is tried again; it has failed once"
        assert again.last_failure.code == "BROKEN"
        assert again.HasField("due_time")


@in_virtual_time
async def test_an_executor_that_is_gone_is_told():
    """Nothing happens until it is back, or its grace is over."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        executor.disconnect()
        [said] = await words(it)
        assert "which is not connected now" in said


@in_virtual_time
async def test_questions_sleeps_pauses_and_delays_are_told():
    """With what ends them."""
    async with rig() as it:
        await it.start(question())
        _, [asked] = await told(it)
        assert asked.question.reason.human.prompt == "go on?"
        assert asked.question.interrupt_id in asked.description
        await it.engine.change_run(NAMESPACE, "r1", Pause(reason=""), None)
        assert [each.split(":")[0] for each in await words(it)] == [
            "is paused",
            "waits for an answer",
        ]
        await it.start(work(), "later", delay={"seconds": 60})
        assert await words(it, "later") == ["has a start delay"]
        sleepy = graph({"a": {"action": {"sleep": {"duration": "60s"}}}}, [])
        await it.start(sleepy, "sleepy")
        _, [sleep] = await told(it, "sleepy")
        assert sleep.description == "sleeps"
        assert sleep.due_time.seconds - sleep.since_time.seconds == 60
        assert not sleep.HasField("requirement")


@in_virtual_time
async def test_a_signal_is_told_with_what_sends_it():
    """Nobody could answer it by its id."""
    async with rig() as it:
        wait = {"wait_signal": {"name": "paid", "correlation": "order 7"}}
        await it.start(graph({"a": {"action": wait}}, []))
        assert await words(it) == [
            "waits for a signal: stepgraph runs signal r1 paid --correlation 'order 7'"
        ]


@in_virtual_time
async def test_a_child_run_is_told_with_what_it_does():
    """What that waits for in turn, explaining it tells."""
    async with rig() as it:
        ask = graph(
            {"ask": {"action": {"human_approval": {"description": "go on?"}}}}, name="inner"
        )
        outer = graph({"a": {"action": {"subgraph": {}}}})
        outer.nodes[0].action.subgraph.graph.definition.CopyFrom(ask)
        it.store.journal.hold()
        starting = asyncio.ensure_future(it.start(outer))
        await it.settle()
        it.store.journal.release()
        run = it.runner.live(RunKey(NAMESPACE, "r1"))
        assert run is not None
        assert run.state is not None
        [about_to] = waits_of(run.state, ConnectedExecutors(it.registry, NAMESPACE))
        child = about_to.child_run_id
        assert about_to.description == f"graph inner is about to start as child run {child}"
        await starting
        await it.settle()
        [waits] = await words(it)
        assert waits == (
            f"graph inner is child run {child}, which waits for people: stepgraph runs explain {child}"
        )
        assert (await words(it, child))[0].startswith("waits for an answer")


@in_virtual_time
async def test_a_run_that_ends_waits_for_its_attempts_and_then_for_nothing():
    """A final run waits for nothing; one that is not there can't be explained."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(work())
        await it.settle()
        await it.engine.change_run(NAMESPACE, "r1", Cancel(reason="enough"), None)
        assert (await words(it))[0].startswith("ends (CANCELLED) as soon as")
        executor.finish_all()
        await it.settle()
        assert await words(it) == []
        with pytest.raises(Refused, match="RUN_NOT_FOUND"):
            await told(it, "r9")


@in_virtual_time
async def test_of_a_wide_run_some_is_told(monkeypatch):
    """Ten thousand of the same help nobody."""
    monkeypatch.setattr(explaining, "MAX_WAITS", 5)
    async with rig() as it:
        await it.start(wide(9))
        await it.settle()
        assert len(await words(it)) == 5
        await Executor(it, script=succeeded, max_in_flight=9).connect()
        await asyncio.sleep(1)
        assert await it.settle() == "COMPLETED"


def paying():
    action = {"tool_call": {"tool_name": "pay", "args_template": "{}"}}
    options = {"deadline": "60s"}
    return graph(
        {"a": {"action": action, "interrupt_options": options}}, approval_filter={"allow": ["*"]}
    )


@in_virtual_time
async def test_a_call_that_needs_approval_says_so_once_and_how_to_answer():
    """Its task and its question are one thing to wait for; the run costs no memory meanwhile."""
    async with rig() as it:
        await it.start(paying())
        await it.settle()
        _run, [wait] = await told(it)
        assert it.status("r1") == "SUSPENDED"
        asked = wait.question.interrupt_id
        assert wait.task_id == wait.question.task_id == "1/a/t0/e0"
        assert wait.description == f"tool pay waits for approval: stepgraph answer {asked} …"
        assert wait.HasField("due_time")


@in_virtual_time
async def test_a_run_is_explained_although_an_append_fails_in_the_same_commit_that_was_waited_for():
    """What was asked stands on the first append; when the second fails, the run is read again first."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(wide(2))
        await it.settle()
        one, other = sorted(executor.running.values(), key=lambda task: task.task_id)
        refused = [unavailable()]
        it.store.journal.faults.append(
            lambda append: refused.pop() if refused and b"/w1/" in append.batch else None
        )
        it.store.journal.hold()
        executor.report(succeeded(one))
        asked = asyncio.gather(it.engine.explain_run(NAMESPACE, "r1"))
        await turns(5)
        executor.report(succeeded(other))
        it.store.journal.release()
        [(run, _)] = await asked
        assert run.last_sequence
        assert not refused
        await asyncio.sleep(1)
        assert await it.settle() == "COMPLETED"
