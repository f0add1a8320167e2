"""Step programs on a whole engine: over crashes, at several executors, in memory only while something is under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import ParseDict

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import transition_pb2
from tests.support.engine_executor import Executor, succeeded
from tests.support.engine_rig import rig
from tests.support.engine_store import FaultyStore
from tests.support.engine_time import in_virtual_time
from tests.support.graphs import graph
from tests.support.hellos import tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph.v1 import graph_pb2, task_pb2

    Program = Callable[[transition_pb2.StepContext], dict[str, Any]]


def _hosts(*programs: str) -> list[pb.Capability]:
    return [
        *(pb.Capability(step=pb.Capability.Step(program=name)) for name in programs),
        tool("t"),
    ]


def _script(
    program: Program, seen: list[transition_pb2.StepContext] | None = None
) -> Callable[[task_pb2.Task], pb.AttemptOutcome]:
    """Return an executor that answers polls by a function, and everything else with success."""

    def play(task: task_pb2.Task) -> pb.AttemptOutcome:
        if not task.input.HasField("step"):
            return succeeded(task, f"done {task.task_id}")
        context = task.input.step
        if seen is not None:
            seen.append(context)
        outcome = pb.AttemptOutcome(task_id=task.task_id, attempt=task.attempt)
        ParseDict(program(context), outcome.succeeded.step)
        return outcome

    return play


def _steps(**more: dict[str, Any]) -> graph_pb2.StateGraph:
    return graph({"a": {"action": {"step": {"program": "p"}}}, **more})


WORK = {"action": {"tool_call": {"tool_name": "t", "args_template": "{}"}}}


def _wide(context: transition_pb2.StepContext, count: int = 300) -> dict[str, Any]:
    if context.turn == 0:
        specs = [{"body": {"node_id": "w"}, "input": {"text": str(n)}} for n in range(count)]
        return {"transition": {"spawn": {"specs": specs, "max_concurrency": 50}}}
    order = [result.index for result in context.results]
    return {"transition": {"done": {"value": {"json": str(order == list(range(count))).lower()}}}}


@in_virtual_time
async def test_many_spawned_at_several_executors_come_back_in_order():
    async with rig() as it:
        for name in ("e1", "e2", "e3"):
            token = f"token of {name}......".encode()
            made = Executor(
                it,
                name,
                token=token,
                capabilities=_hosts("p"),
                script=_script(_wide),
                max_in_flight=8,
            )
            await made.connect()
        await it.start(_steps(w=WORK))
        while it.status() != "COMPLETED":
            assert await it.settle() in ("RUNNING", "COMPLETED")
        assert it.store.events("r1")[-1].run_completed.result.output.json == "true"
        it.check_quiescent()


def _two_turns(context: transition_pb2.StepContext) -> dict[str, Any]:
    if context.turn < 2:
        return {"transition": {"await_effects": {"effects": [{"tool": {"name": "t"}}]}}}
    return {"transition": {"done": {}}}


@in_virtual_time
async def test_a_finished_turn_is_never_polled_again_wherever_the_server_is_killed():
    store = FaultyStore()
    seen: list[transition_pb2.StepContext] = []
    started = False
    for _ in range(20):
        async with rig(store) as it:
            executor = Executor(it, capabilities=_hosts("p"), script=_script(_two_turns, seen))
            await executor.connect()
            if not started:
                await it.start(_steps())
                started = True
            for _ in range(3):
                await asyncio.sleep(0)
            it.crash()
    async with rig(store) as it:
        await Executor(it, capabilities=_hosts("p"), script=_script(_two_turns, seen)).connect()
        assert await it.settle() == "COMPLETED"
    recorded = Counter(
        event.task_completed.task_id
        for event in store.events("r1")
        if event.HasField("task_completed")
    )
    assert set(recorded.values()) == {1}
    # What was answered and not yet durable may be asked again; what was recorded may not.
    assert [context.turn for context in seen] == sorted(context.turn for context in seen)


@in_virtual_time
async def test_a_run_that_only_sleeps_costs_no_memory_and_wakes_at_the_time_first_set():
    store = FaultyStore()

    def naps(context: transition_pb2.StepContext) -> dict[str, Any]:
        if context.turn == 0:
            return {"transition": {"await_effects": {"effects": [{"sleep": {"duration": "100s"}}]}}}
        return {"transition": {"done": {}}}

    async with rig(store) as it:
        await Executor(it, capabilities=_hosts("p"), script=_script(naps)).connect()
        await it.start(_steps())
        assert await it.settle() == "RUNNING"
        assert it.runner.live_count == 0
        await asyncio.sleep(40)
        it.crash()
    async with rig(store) as it:
        await Executor(it, capabilities=_hosts("p"), script=_script(naps)).connect()
        await asyncio.sleep(59)
        assert await it.settle() == "RUNNING"
        await asyncio.sleep(2)
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_a_process_that_holds_the_turns_is_polled_again_without_them():
    def holds(context: transition_pb2.StepContext) -> dict[str, Any]:
        return {**_two_turns(context), "holds_turns": True}

    async with rig() as it:
        seen: dict[str, list[transition_pb2.StepContext]] = {"e1": [], "e2": []}
        for name, contexts in seen.items():
            token = f"token of {name}......".encode()
            script = _script(holds, contexts)
            await Executor(it, name, token=token, capabilities=_hosts("p"), script=script).connect()
        await it.start(_steps())
        assert await it.settle() == "COMPLETED"
        (contexts,) = [each for each in seen.values() if each]
        assert [(c.turn, c.history_start, len(c.history)) for c in contexts] == [
            (0, 0, 0),
            (1, 1, 0),
            (2, 2, 0),
        ]


@in_virtual_time
async def test_who_loses_a_race_is_told_to_stop_and_its_late_result_counts_for_nothing():
    def races(context: transition_pb2.StepContext) -> dict[str, Any]:
        if context.turn == 0:
            specs = [{"body": {"node_id": "w"}}, {"body": {"node_id": "w"}}]
            return {"transition": {"spawn": {"specs": specs, "join": "JOIN_POLICY_FIRST"}}}
        return {"transition": {"done": {"value": {"text": "won"}}}}

    async with rig() as it:
        polls = _script(races)
        executor = await Executor(
            it,
            capabilities=_hosts("p"),
            script=lambda task: polls(task) if task.input.HasField("step") else None,
        ).connect()
        await it.start(_steps(w=WORK))
        await it.settle()
        one, other = sorted(executor.running.values(), key=lambda task: task.task_id)
        executor.report(succeeded(other))
        assert await it.settle() == "COMPLETED"
        assert executor.cancels == [(one.task_id, 1, "another of its Spawn was first")]
        executor.report(succeeded(one))
        await it.settle()
        assert executor.verdicts()[-1] == "STALE"
        it.check_quiescent()
