"""Child runs on a whole engine: created once, told, heard of, whatever dies when. The rules are in core/test_children.py."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from stepgraph.v1 import graph_pb2, interrupt_pb2, run_pb2, run_service_pb2
from stepgraph_server.core import invariants
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.inputs import Cancel, Pause, RunLimits, Unpause
from stepgraph_server.engine import children as engine_children
from stepgraph_server.engine.callers import Caller
from stepgraph_server.engine.children import Children
from stepgraph_server.engine.live import Delivery
from stepgraph_server.storage.records import RunKey
from tests.support.engine_executor import Executor, cancelled, failed, succeeded
from tests.support.engine_rig import NAMESPACE, question, rig, steps, work
from tests.support.engine_store import FaultyStore
from tests.support.engine_time import in_virtual_time, turns
from tests.support.graphs import graph

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stepgraph.v1 import event_pb2
    from tests.support.engine_rig import Rig


def calling(
    child: graph_pb2.StateGraph | str,
    *,
    given: Mapping[str, str] | None = None,
    wanted: Mapping[str, str] | None = None,
    name: str = "outer",
    **fields: object,
) -> graph_pb2.StateGraph:
    """Build a graph whose one node runs a graph."""
    made = graph({"sub": {"action": {"subgraph": {}}}}, name=name, **fields)
    action = made.nodes[0].action.subgraph
    if isinstance(child, str):
        action.graph.reference = child
    else:
        action.graph.definition.CopyFrom(child)
    action.input.update(given or {})
    action.output.update(wanted or {})
    return made


def remembering() -> graph_pb2.StateGraph:
    """Build a graph that works, and keeps what came of it."""
    return work(output_variable="kept")


def children(it: Rig) -> dict[str, run_pb2.Run]:
    """Return all child runs by id."""
    return {
        key.run_id: run.record.to_run()
        for key, run in it.store.runs.by_key.items()
        if run.record.creation.parent_run_id
    }


def only_child(it: Rig) -> run_pb2.Run:
    [child] = children(it).values()
    return child


def events(it: Rig, kind: str, run_id: str = "r1") -> list[event_pb2.RunEvent]:
    return [event for event in it.store.events(run_id) if event.HasField(kind)]


async def change(it: Rig, run_id: str, wish: Cancel | Pause | Unpause) -> None:
    await it.engine.change_run(NAMESPACE, run_id, wish, None)


async def proceed(it: Rig, run_id: str) -> None:
    """Answer the question of a run."""
    [opened] = events(it, "interrupt_opened", run_id)
    answer = interrupt_pb2.InterruptAnswer()
    answer.proceed.SetInParent()
    interrupt_id = opened.interrupt_opened.question.interrupt_id
    await it.engine.answer(NAMESPACE, interrupt_id, answer, "anna", None)


async def register(it: Rig, name: str, definition: graph_pb2.StateGraph) -> str:
    """Register a graph; return its digest."""
    compiled = it.graphs.compile(definition)
    raw = definition.SerializeToString(deterministic=True)
    await it.store.graphs.put(NAMESPACE, name, compiled.digest, raw, it.clock.now())
    return compiled.digest


@in_virtual_time
async def test_a_child_run_is_a_run_of_its_own():
    """It has its own journal, its parent, its root and its selector, and its end is its task's result."""
    async with rig() as it:
        executor = await Executor(it).connect()
        parent = calling(remembering(), given={"topic": "{{subject}}"}, wanted={"result": "kept"})
        given = run_pb2.RunInput()
        given.variables["subject"].text = "bees"
        await it.start(parent, input=given)
        assert await it.settle() == "RUNNING"
        child = only_child(it)
        assert (child.parent.run_id, child.parent.task_id) == ("r1", "1/sub/t0/e0")
        assert (child.root_run_id, child.graph.name) == ("r1", "")
        [began] = events(it, "run_started", child.run_id)
        assert began.run_started.depth == 1
        assert began.run_started.input.variables["topic"].text == "bees"
        assert not began.run_started.HasField("initial_state")
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        assert it.status(child.run_id) == "COMPLETED"
        [ended] = events(it, "task_completed")
        assert ended.task_completed.result.graph.run_id == child.run_id
        state = (await it.engine.run_state(NAMESPACE, "r1", 0)).variables
        assert state["result"].text == "done"
        assert "topic" not in state
        it.check_quiescent()


@in_virtual_time
async def test_a_failure_of_a_child_reaches_the_edges_of_its_parent():
    async with rig() as it:
        await Executor(it, script=lambda task: failed(task, "NO_SUCH_PAGE")).connect()
        child = work(retry={"max_tries": 1})
        parent = graph(
            {"sub": {"action": {"subgraph": {"graph": {"reference": "child"}}}}, "saved": {}},
            [("sub > saved", {"condition": {"error_occurred": {"codes": ["NO_SUCH_PAGE"]}}})],
        )
        await register(it, "child", child)
        await it.start(parent)
        assert await it.settle() == "COMPLETED"
        [fell] = events(it, "task_failed")
        why = fell.task_failed.failure
        assert (why.code, why.causes[0].code, why.retryable) == ("NO_SUCH_PAGE",) * 2 + (False,)
        assert why.details["child_run_id"] == only_child(it).run_id


@in_virtual_time
async def test_a_child_that_is_cancelled_alone_fails_its_task():
    """Case 19: not tried again, and routable."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(calling(work()))
        await it.settle()
        await change(it, only_child(it).run_id, Cancel(reason="not needed"))
        await it.settle()
        executor.report(*(cancelled(task) for task in executor.running.values()))
        assert await it.settle() == "FAILED"
        [fell] = events(it, "task_failed")
        assert fell.task_failed.failure.code == "CANCELLED"
        assert len(children(it)) == 1


@in_virtual_time
async def test_the_end_of_a_parent_comes_after_that_of_all_its_children():
    """Case 19: the child is STOPPING first."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(calling(calling(work(), name="middle")))
        await it.settle()
        assert len(children(it)) == 2
        await change(it, "r1", Cancel(reason="enough"))
        await it.settle()
        assert {it.status(run_id) for run_id in ("r1", *children(it))} == {"STOPPING"}
        # The executor is silent: the grace of each run is over, from the leaf up.
        await asyncio.sleep(10)
        await it.settle()
        assert {it.status(run_id) for run_id in ("r1", *children(it))} == {"CANCELLED"}
        order = [run_id for run_id, _, _, terminal in it.hub.batches if terminal]
        depth = {
            run_id: started.run_started.depth
            for run_id in order
            for started in events(it, "run_started", run_id)
        }
        assert [depth[run_id] for run_id in order] == [2, 1, 0]
        executor.report(*(cancelled(task) for task in executor.running.values()))
        await it.settle()
        it.check_quiescent()


@in_virtual_time
async def test_a_parent_waits_for_people_with_its_child_and_costs_no_memory():
    async with rig() as it:
        executor = await Executor(it, script=succeeded).connect()
        await it.start(calling(question()))
        assert await it.settle() == "SUSPENDED"
        child = only_child(it)
        assert it.status(child.run_id) == "SUSPENDED"
        assert it.runner.live_count == 0
        found = await it.store.interrupts.list(NAMESPACE, None, "r1", 1, None, 10)
        assert [key.run_id for _, key in found] == [child.run_id]
        await proceed(it, child.run_id)
        assert await it.settle() == "COMPLETED"
        statuses = [each.child_status_changed.status for each in events(it, "child_status_changed")]
        assert statuses == [run_pb2.RUN_STATUS_SUSPENDED, run_pb2.RUN_STATUS_RUNNING]
        assert executor.received
        it.check_quiescent()


@in_virtual_time
async def test_children_pause_and_go_on_with_their_parent():
    """One that was paused by itself stays paused."""
    async with rig() as it:
        executor = await Executor(it).connect()
        child = calling(work(), name="middle")
        two = graph(
            {"split": {}, **{name: {"action": {"subgraph": {}}} for name in "ab"}},
            ["split > a", "split > b"],
        )
        for node in two.nodes[1:]:
            node.action.subgraph.graph.definition.CopyFrom(child)
        await it.start(two)
        await it.settle()
        assert len(children(it)) == 4
        alone = next(
            each.run_id for each in children(it).values() if each.parent.task_id == "2/a/t0/e0"
        )
        await change(it, alone, Pause(reason="by itself"))
        await change(it, "r1", Pause(reason="lunch"))
        await it.settle()
        assert {it.status(run_id) for run_id in ("r1", *children(it))} == {"PAUSED"}
        await change(it, "r1", Unpause())
        assert await it.settle() == "RUNNING"
        paused = {run_id for run_id in children(it) if it.status(run_id) == "PAUSED"}
        assert alone in paused
        assert len(paused) == 2
        await change(it, alone, Unpause())
        await it.settle()
        executor.finish_all()
        assert await it.settle() == "COMPLETED"
        it.check_quiescent()


@in_virtual_time
async def test_a_tree_that_waits_for_people_is_read_once_when_somebody_asks():
    """Its parent hears of its child run by being read, and must not be read again for what it knows."""
    async with rig() as it:
        await it.start(calling(question()))
        assert await it.settle() == "SUSPENDED"
        await it.engine.explain_run(NAMESPACE, "r1")
        await it.settle()
        before = it.store.runs.reads
        await turns(100)
        assert it.store.runs.reads == before
        assert it.runner.live_count == 0


@in_virtual_time
async def test_a_child_that_is_to_pause_before_it_is_there_is_created_all_the_same():
    """To be told so it is looked for, and meanwhile its id is in use."""
    async with rig() as it:
        executor = await Executor(it, script=succeeded).connect()
        it.store.journal.hold()
        it.spawn(it.start(calling(work())))
        await turns(3)
        it.runner.deliver(
            RunKey(NAMESPACE, "r1"), Delivery(happened=Pause(reason="at once"), keep=True)
        )
        await turns(3)
        it.store.journal.release()
        assert await it.settle() == "PAUSED"
        await change(it, "r1", Unpause())
        assert await it.settle() == "COMPLETED"
        assert executor.received


@in_virtual_time
async def test_a_time_limit_goes_down():
    async with rig() as it:
        await Executor(it).connect()
        await it.start(calling(steps(1, time_limit="60s"), time_limit="5s"), "shorter")
        await it.start(calling(steps(1, time_limit="5s"), time_limit="60s"), "own")
        await it.settle()
        limits = {
            child.parent.run_id: child.next_due_time.ToMicroseconds()
            - child.create_time.ToMicroseconds()
            for child in children(it).values()
        }
        assert limits == {"shorter": 5_000_000, "own": 5_000_000}
        await asyncio.sleep(16)
        assert (it.status("shorter"), it.status("own")) == ("FAILED", "FAILED")
        [ended] = events(it, "run_failed", "own")
        assert ended.run_failed.failure.code == "TIME_LIMIT"


@in_virtual_time
async def test_a_child_has_what_its_parent_had_left_of_its_tokens():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(calling(work()), token_limit=100)
        await it.settle()
        child = only_child(it)
        [began] = events(it, "run_started", child.run_id)
        assert began.run_started.token_limit == 100
        [task] = executor.running.values()
        outcome = succeeded(task)
        outcome.succeeded.agent.usage.input_tokens = 30
        executor.report(outcome)
        assert await it.settle() == "COMPLETED"
        record = it.store.runs.by_key[RunKey(NAMESPACE, "r1")].record
        assert record.progress.input_tokens == 30


# Graphs that are named


@in_virtual_time
async def test_references_stand_for_one_version_in_the_whole_tree():
    """What is registered while the tree lives changes nothing in it."""
    async with rig() as it:
        executor = await Executor(it, script=succeeded).connect()
        first = await register(it, "leaf", question())
        await register(it, "middle", calling("leaf", name="middle"))
        await it.start(calling("middle"))
        await it.settle()
        resolved = {
            each.reference: each.graph.digest
            for each in events(it, "run_started")[0].run_started.resolved_graphs
        }
        assert resolved["leaf"] == first
        await register(it, "leaf", work())
        leaf = next(run for run in children(it).values() if run.graph.name == "leaf")
        assert (leaf.graph.version, leaf.graph.digest) == (1, first)
        await proceed(it, leaf.run_id)
        assert await it.settle() == "COMPLETED"
        assert executor.received


@in_virtual_time
async def test_a_graph_that_is_not_there_is_named_with_its_path():
    async with rig() as it:
        inner = calling("gone", name="inner")
        with pytest.raises(Refused) as refused:
            await it.start(calling(inner))
        path = "graph.definition.nodes[0].action.subgraph.graph.definition.nodes[0].action.subgraph.graph.reference"
        assert refused.value.reason == "GRAPH_NOT_FOUND"
        assert refused.value.violations[0].path == path
        assert "'gone'" in refused.value.message
        await register(it, "middle", calling("gone", name="middle"))
        request = run_service_pb2.StartRunRequest(run_id="r2")
        request.graph.definition.CopyFrom(calling("middle"))
        with pytest.raises(Refused) as refused:
            await it.engine.start_run(NAMESPACE, request, Caller())
        assert "middle: nodes[0].action.subgraph.graph.reference" in refused.value.message


@in_virtual_time
async def test_a_graph_may_run_itself_to_a_depth():
    definition = graph({"sub": {"action": {"subgraph": {"graph": {"same_version": {}}}}}})
    async with rig() as it:
        await it.start(definition)
        assert await it.settle() == "FAILED"
        assert len(children(it)) == 16
        [ended] = events(it, "run_failed")
        why = ended.run_failed.failure
        assert why.code == "RUN_TREE_TOO_DEEP"
        it.check_quiescent()


@in_virtual_time
async def test_a_tree_has_a_size():
    """Each branch doubles, until the root and all below it are as many as may be."""
    nodes = {name: {"action": {"subgraph": {"graph": {"same_version": {}}}}} for name in "ab"}
    definition = graph({"split": {}, **nodes}, ["split > a", "split > b"])
    async with rig(limits=RunLimits(max_runs_per_root=9)) as it:
        await it.start(definition)
        assert await it.settle() == "FAILED"
        assert len(children(it)) == 8
        [ended] = events(it, "run_failed")
        assert ended.run_failed.failure.code == "RUN_TREE_TOO_LARGE"


@in_virtual_time
async def test_one_reply_creates_only_so_many_child_runs_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may want ten thousand; all are created, and other runs go on meanwhile."""
    at_once, most = 0, 0
    create = Children._try

    async def slowly(self: Children, wanted: Any) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await turns(3)
        await create(self, wanted)
        at_once -= 1

    monkeypatch.setattr(Children, "_try", slowly)
    definition = graph(
        {
            "each": {
                "action": {"map": {"items": "[1, 2, 3, 4, 5, 6, 7]", "body": {"node_id": "sub"}}}
            },
            "sub": {"action": {"subgraph": {}}},
        }
    )
    definition.nodes[1].action.subgraph.graph.definition.CopyFrom(graph({"end": {}}))
    monkeypatch.setattr(engine_children, "MAX_CREATING", 3)
    async with rig() as it:
        await it.start(definition)
        await turns(100)
        assert it.status() == "COMPLETED"
        assert (len(children(it)), most) == (7, 3)


@in_virtual_time
async def test_the_id_of_a_child_may_not_be_taken_by_another_run():
    async with rig() as it:
        await Executor(it).connect()
        await it.start(calling(work()), "first")
        await it.settle()
        taken = only_child(it).run_id
    async with rig() as it:
        await Executor(it).connect()
        await it.start(work(), taken)
        await it.start(calling(work()), "first")
        assert await it.settle("first") == "FAILED"
        [ended] = events(it, "run_failed", "first")
        assert ended.run_failed.failure.code == "RUN_EXISTS"
        assert it.status(taken) == "RUNNING"


@in_virtual_time
async def test_a_child_that_can_not_be_read_fails_its_task():
    """Its parent does not wait for ever."""
    store = FaultyStore()
    async with rig(store) as it:
        await Executor(it).connect()
        await it.start(calling(work()))
        await it.settle()
        child = only_child(it)
        it.crash()
    store.corrupt(child.run_id)
    async with rig(store) as it:
        assert await it.settle() == "FAILED"
        [ended] = events(it, "run_failed")
        assert ended.run_failed.failure.code == "RUN_QUARANTINED"


@in_virtual_time
async def test_a_store_that_fails_for_a_while_only_delays_a_child():
    store = FaultyStore()
    async with rig(store) as it:
        await Executor(it, script=succeeded).connect()
        await it.start(calling(work()))
        store.fail_next("child_started")
        store.fail_next("run_started", times=2)
        store.fail_next("run_completed", times=2)
        for _ in range(20):
            await asyncio.sleep(1)
            await it.settle()
        assert it.status() == "COMPLETED"
        assert len(children(it)) == 1
        assert store.kinds("r1").count("child_started") == 1
        it.check_quiescent()


# Forks


@in_virtual_time
async def test_a_fork_starts_its_child_anew():
    """Case 20: under an id of its own; the other run and its child go on, untouched."""
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(calling(work()))
        await it.settle()
        request = run_service_pb2.ForkRunRequest(run_id="r1", new_run_id="r2")
        await it.engine.fork_run(NAMESPACE, request, Caller(), None)
        await it.settle()
        parents = {child.parent.run_id: child.run_id for child in children(it).values()}
        assert set(parents) == {"r1", "r2"}
        assert parents["r1"] != parents["r2"]
        roots = {child.root_run_id for child in children(it).values()}
        assert roots == {"r1", "r2"}
        executor.finish_all()
        await it.settle()
        assert (it.status("r1"), it.status("r2")) == ("COMPLETED", "COMPLETED")


@in_virtual_time
async def test_a_fork_of_a_child_is_nobodys_child():
    async with rig() as it:
        executor = await Executor(it).connect()
        await it.start(calling(work()))
        await it.settle()
        child = only_child(it)
        request = run_service_pb2.ForkRunRequest(run_id=child.run_id, new_run_id="r2")
        forked = await it.engine.fork_run(NAMESPACE, request, Caller(), None)
        assert not forked.HasField("parent")
        assert forked.root_run_id == "r2"
        executor.finish_all()
        await it.settle()
        executor.finish_all()
        await it.settle()
        assert (it.status("r1"), it.status("r2")) == ("COMPLETED", "COMPLETED")


# Crashes


def die_after(it: Rig, commits: int) -> Callable[[], bool]:
    """Kill the server right after so many commits, of the last of which nobody hears. Returns whether it has died."""
    journal = it.store.journal
    hear, heard = journal._on_appended, [0]
    assert hear is not None

    def on_appended(group: list[object]) -> None:
        heard[0] += 1
        if heard[0] == commits:
            it.crash()
        elif heard[0] < commits:
            hear(group)  # type: ignore[arg-type]  # as it came

    journal._on_appended = on_appended  # type: ignore[assignment]  # the same signature
    return lambda: heard[0] >= commits


async def play_through_crashes(
    definition: graph_pb2.StateGraph,
    then: Callable[[Rig, Executor], Awaitable[None]],
    check: Callable[[Rig], None],
    seed: int,
) -> int:
    """Play the same story over and over, and kill the server once in each, at every commit there is."""
    for commits in itertools.count(1):
        store = FaultyStore()
        store.journal.chance = random.Random(seed + commits)
        async with rig(store) as it:
            has_died = die_after(it, commits)
            executor = await Executor(it, script=succeeded).connect()
            starting = asyncio.ensure_future(it.start(definition))
            await _for_a_while(then(it, executor))
            died = has_died()
            starting.cancel()
            if not died:
                check(it)
                return commits
            executor.disconnect()
        async with rig(store) as it:
            executor.rig = it
            await executor.connect()
            if not it.status():
                await it.start(definition)
            await _for_a_while(then(it, executor))
            await asyncio.sleep(12)
            await it.settle()
            check(it)
            it.check_quiescent()
    raise AssertionError


async def _for_a_while(work: Awaitable[None]) -> None:
    """Do what a server may die under."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(work, 30)


def check_tree(it: Rig, status: str) -> None:
    """Check that everything happened exactly once."""
    assert it.status() == status, [
        (it.status(run_id), it.store.kinds(run_id)) for run_id in ("r1", *children(it))
    ]
    [child] = children(it).values()
    kinds = it.store.kinds("r1")
    assert kinds.count("child_started") <= 1
    assert kinds.count("task_scheduled") == 1
    assert it.store.kinds(child.run_id).count("run_started") == 1
    assert child.HasField("end_time")


@in_virtual_time
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_crash_between_parent_and_child_is_harmless_wherever_it_is(seed: int):
    """Case 19: the end of a child is recorded once, and nothing of it is done twice."""

    async def wait(it: Rig, _: Executor) -> None:
        await turns(200)

    def check(it: Rig) -> None:
        check_tree(it, "COMPLETED")
        assert it.store.kinds("r1").count("task_completed") == 1
        assert it.store.kinds(only_child(it).run_id).count("task_completed") == 1

    definition = calling(remembering(), wanted={"result": "kept"})
    assert await play_through_crashes(definition, wait, check, seed) > 5


@in_virtual_time
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_crash_while_a_child_waits_for_people_is_harmless_wherever_it_is(seed: int):
    async def answer(it: Rig, _: Executor) -> None:
        await turns(200)
        for child in children(it).values():
            if it.status(child.run_id) == "SUSPENDED":
                await proceed(it, child.run_id)
        await turns(200)

    def check(it: Rig) -> None:
        check_tree(it, "COMPLETED")

    assert await play_through_crashes(calling(question()), answer, check, seed) > 5


@in_virtual_time
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_crash_while_a_tree_is_stopped_is_harmless_wherever_it_is(seed: int):
    async def cancel(it: Rig, executor: Executor) -> None:
        executor.script = None
        await turns(200)
        if it.status() not in ("", "CANCELLED"):
            await change(it, "r1", Cancel(reason="enough"))
        await turns(200)
        executor.report(*(cancelled(task) for task in list(executor.running.values())))
        await turns(200)

    def check(it: Rig) -> None:
        assert it.status() == "CANCELLED"
        for child in children(it).values():
            assert it.status(child.run_id) == "CANCELLED"

    assert await play_through_crashes(calling(work()), cancel, check, seed) > 4


@in_virtual_time
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_crash_while_a_tree_is_paused_is_harmless_wherever_it_is(seed: int):
    async def pause(it: Rig, executor: Executor) -> None:
        await turns(100)
        if it.status() not in ("COMPLETED", "PAUSED"):
            executor.script = None
            await change(it, "r1", Pause(reason=""))
            await turns(100)
        if it.status() == "PAUSED":
            await change(it, "r1", Unpause())
        await turns(100)
        executor.script = succeeded
        executor.finish_all()
        await turns(100)

    def check(it: Rig) -> None:
        check_tree(it, "COMPLETED")

    definition = calling(question())

    async def both(it: Rig, executor: Executor) -> None:
        await turns(100)
        for child in children(it).values():
            if it.status(child.run_id) == "SUSPENDED" and it.status() == "SUSPENDED":
                await change(it, "r1", Pause(reason=""))
                await turns(100)
                await proceed(it, child.run_id)
                await turns(100)
                await change(it, "r1", Unpause())
        await turns(100)
        await pause(it, executor)
        for child in children(it).values():
            if it.status(child.run_id) == "SUSPENDED":
                await proceed(it, child.run_id)
        await turns(200)

    assert await play_through_crashes(definition, both, check, seed) > 9


@in_virtual_time
async def test_a_child_that_somebody_paused_is_left_alone_after_a_restart():
    """Its parent goes on, and does not tell it to: telling would load it, and it would tell its parent, without end."""
    store = FaultyStore()
    async with rig(store) as it:
        await Executor(it).connect()
        await it.start(calling(work()))
        await it.settle()
        await change(it, only_child(it).run_id, Pause(reason="so"))
        await it.settle()
        it.crash()
    async with rig(store) as it:
        await it.settle()
        reads = store.runs.reads
        await it.settle()
        assert store.runs.reads == reads
        assert it.status(only_child(it).run_id) == "PAUSED"
        assert it.status() == "RUNNING"


async def meddle(it: Rig, dice: random.Random) -> None:
    """Let somebody do something to some run of the tree."""
    run_id = dice.choice(["r1", *children(it)])
    wish = dice.choice(["pause", "unpause", "answer", "answer", "answer", "wait"])
    with contextlib.suppress(Refused):
        match wish:
            case "pause":
                await change(it, run_id, Pause(reason="so"))
            case "unpause":
                await change(it, run_id, Unpause())
            case "answer" if it.status(run_id) == "SUSPENDED" and events(
                it, "interrupt_opened", run_id
            ):
                await proceed(it, run_id)
            case _:
                pass
    await turns(dice.randint(1, 60))


@in_virtual_time
@pytest.mark.parametrize("seed", range(8))
async def test_a_tree_comes_to_its_end_whatever_is_done_to_its_runs_and_however_often_it_dies(
    seed: int,
) -> None:
    """And every run of it keeps all invariants: nothing begins twice, and no parent ends before what it waits for."""
    dice = random.Random(seed)
    two = graph(
        {"split": {}, **{name: {"action": {"subgraph": {}}} for name in "ab"}},
        ["split > a", "split > b"],
    )
    two.nodes[1].action.subgraph.graph.definition.CopyFrom(calling(question(), name="middle"))
    two.nodes[2].action.subgraph.graph.definition.CopyFrom(question())
    store = FaultyStore()
    async with rig(store) as it:
        await it.start(two)
        it.crash()
    for _ in range(5):
        store.journal.chance = random.Random(dice.random())
        async with rig(store) as it:
            die_after(it, dice.randint(1, 12))
            await Executor(it, script=succeeded).connect()
            for _ in range(dice.randint(1, 6)):
                await _for_a_while(meddle(it, dice))
            it.crash()
    async with rig(store) as it:
        await Executor(it, script=succeeded).connect()
        await asyncio.sleep(60)
        for _ in range(8):
            for run_id in ("r1", *children(it)):
                if it.status(run_id) == "PAUSED":
                    await change(it, run_id, Unpause())
                await turns(100)
                if it.status(run_id) == "SUSPENDED" and "interrupt_opened" in store.kinds(run_id):
                    await proceed(it, run_id)
            await turns(100)
        assert len(children(it)) == 3
        for run_id in ("r1", *children(it)):
            assert it.status(run_id) == "COMPLETED", [
                (each, it.status(each), store.kinds(each)[-4:]) for each in ("r1", *children(it))
            ]
            key = RunKey(NAMESPACE, run_id)
            record = await it.runner.folder.record(key)
            state = await it.runner.folder.fold_until(key, record, None)
            assert invariants.check(state, store.events(run_id)) == []
        it.check_quiescent()
