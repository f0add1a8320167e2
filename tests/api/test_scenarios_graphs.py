"""Scenarios of the walk, over the wire: joins below choices, races, parallel writes, fan-out, conditions that fail, caps of loops.

Each once and whole; the variants stand in tests/scenarios, against the core. What needs several servers is not here.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import (
    Failed,
    Graph,
    TaskContext,
    expression,
    iteration_exceeds,
    otherwise,
    proceed,
    retry,
    state_equals,
)
from tests.support.e2e_house import happened, history, house_with_server, kinds

COMPLETED = RunStatus.RUN_STATUS_COMPLETED
FAILED = RunStatus.RUN_STATUS_FAILED


@pytest.fixture
async def house():
    async with house_with_server() as (house, _):
        yield house


@pytest.fixture
async def client(house):
    return await house.client()


# ---- a join below a choice -------------------------------------------------------------------


@pytest.mark.parametrize(("x", "ran", "skipped"), [("true", "a", "b"), ("false", "b", "a")])
async def test_a_join_below_a_choice_runs_once_with_the_branch_that_was_taken(
    client, x, ran, skipped
):
    graph = Graph("choice")
    graph.assign("cond")
    for branch in ("a", "b"):
        graph.assign(branch, {"seen": f"'{branch}'"}, output="from_branch")
    graph.assign("join", {"joined": "vars.seen"}, join="all")
    graph.assign("end")
    graph.edge("cond", "a", when=state_equals("x", "true"))
    graph.edge("cond", "b", when=otherwise())
    for branch in ("a", "b"):
        graph.edge(branch, "join")
    graph.edge("join", "end")
    graph.end("end")

    run = await client.start_run(graph, variables={"x": x})
    row = await run.wait()
    events = await history(client, run.run_id)
    state = await run.state()

    assert completed(events) == ["cond", ran, "join", "end"]
    assert [e.node_skipped.node_id for e in events if e.HasField("node_skipped")] in ([], [skipped])
    assert (row.status, row.result.terminal_node) == (COMPLETED, "end")
    assert state.variables["joined"] == ran


# ---- who is first ----------------------------------------------------------------------------


async def test_a_node_that_any_branch_enters_waits_for_all_of_a_superstep_and_ends_none(
    house, client
):
    executor = house.executor("e1")
    finish = asyncio.Event()

    @executor.tool()
    async def run(branch: str) -> str:
        if branch == "slow":
            await finish.wait()
        await house.ledger.note(f"{branch} ended")
        return branch

    await house.work(executor)
    graph = Graph("any")
    graph.reducer("ended", "append")
    graph.assign("start")
    for branch in ("fast", "slow"):
        graph.tool(branch, "run", {"branch": branch}, output="ended")
        graph.edge("start", branch)
        graph.edge(branch, "join")
    graph.assign("join", join="any")

    run_ = await client.start_run(graph)
    await happened(client, run_.run_id, "task_completed")
    finish.set()
    row = await run_.wait()
    events = await history(client, run_.run_id)

    assert row.status == COMPLETED
    assert house.ledger.calls == {"fast ended": 1, "slow ended": 1}
    assert [n for n in completed(events) if n == "join"] == ["join"]
    assert (await run_.state()).variables["ended"] == ["fast", "slow"]
    assert "task_cancelled" not in kinds(events)


async def test_a_race_tells_its_loser_to_stop_and_the_run_goes_on_at_once(house, client):
    executor = house.executor("e1")
    stopped: dict[str, str] = {}

    @executor.agent("racer")
    async def racer(task: str, ctx: TaskContext) -> str:
        await house.ledger.note(f"{task} began")
        if task == "slow":
            try:
                await asyncio.Event().wait()
            finally:
                stopped["reason"] = ctx.cancel_reason
                await house.ledger.note("slow stopped")
        else:
            await house.ledger.called("slow began")
        return task

    await house.work(executor)
    graph = Graph("race")
    graph.map("race", "['slow', 'fast']", body="racer", join_policy="first", output="won")
    graph.delegate("racer", "racer", "{{item}}")
    graph.assign("after", {"winner": "vars.won[0]"})
    graph.edge("race", "after")

    run = await client.start_run(graph)
    row = await run.wait()
    await house.ledger.called("slow stopped")
    events = await history(client, run.run_id)

    assert row.status == COMPLETED
    assert (await run.state()).variables["winner"] == "fast"
    assert stopped["reason"]
    (cancelled,) = [e.task_cancelled for e in events if e.HasField("task_cancelled")]
    assert "/s0/" in cancelled.task_id, "the first of the list, which is the slow one"
    assert "task_failed" not in kinds(events)
    assert "node_failed" not in kinds(events)


def completed(events):
    """Return the nodes that completed, in order."""
    return [event.node_completed.node_id for event in events if event.HasField("node_completed")]


# ---- parallel branches that write one variable -----------------------------------------------

BRANCHES = [f"branch{number}" for number in range(5)]


def parallel(house, executor_id="e1"):
    """Return an executor of a tool that takes a random while, and gives back what it was given."""
    executor = house.executor(executor_id)
    chance = random.Random(5)

    @executor.tool()
    async def slow(branch: str) -> str:
        await asyncio.sleep(chance.uniform(0, 0.04))
        await house.ledger.note(branch)
        return branch

    return executor


def fan(reducers):
    graph = Graph("fan")
    graph.assign("start")
    for branch in BRANCHES:
        graph.tool(branch, "slow", {"branch": branch}, output="log")
        graph.assign(
            f"count_{branch}",
            {"count": "1", **{name: "'x'" for name in reducers if name == "note"}},
        )
        graph.edge("start", branch)
        graph.edge(branch, f"count_{branch}")
        graph.edge(f"count_{branch}", "join")
    graph.assign("join", join="all")
    graph.end("join")
    for name, how in reducers.items():
        graph.reducer(name, how)
    return graph


async def test_what_parallel_branches_write_comes_together_in_one_order_whoever_is_first(
    house, client
):
    await house.work(parallel(house))
    await client.register_graph(fan({"log": "append", "count": "sum"}))

    runs = [await client.start_run("fan") for _ in range(50)]
    assert {(await run.wait()).status for run in runs} == {COMPLETED}

    states = [await run.state() for run in runs]
    orders = set()
    for run in runs:
        events = await history(client, run.run_id)
        orders.add(tuple(e.task_completed.task_id for e in events if e.HasField("task_completed")))
    assert {tuple(state.variables["log"]) for state in states} == {tuple(BRANCHES)}
    assert {state.variables["count"] for state in states} == {5}
    assert len(orders) > 1, "the branches always ended in one order, so nothing was tried"


async def test_the_journal_gives_the_same_states_byte_by_byte_after_a_restart(tmp_path):
    data = tmp_path / "runs.db"
    async with house_with_server(data) as (house, _):
        await house.work(parallel(house))
        client = await house.client()
        await client.register_graph(fan({"log": "append", "count": "sum"}))
        runs = [await client.start_run("fan") for _ in range(5)]
        assert {(await run.wait()).status for run in runs} == {COMPLETED}
        before = [state_bytes(await run.state()) for run in runs]
    async with house_with_server(data) as (house, _):
        client = await house.client()
        after = [state_bytes(await client.state(run.run_id)) for run in runs]

    assert after == before


def state_bytes(read):
    return read.state.SerializeToString(deterministic=True)


async def test_two_writers_of_a_single_variable_fail_the_run_with_its_name_and_both_nodes(
    house, client
):
    await house.work(parallel(house))
    graph = fan({"log": "append", "count": "sum", "note": "single"})

    run = await client.start_run(graph)
    row = await run.wait()

    state = await run.state()
    failure = row.failure
    assert (row.status, failure.code) == (FAILED, "STATE_CONFLICT")
    said = failure.message + str(dict(failure.details))
    assert "note" in said
    assert "count_branch0" in said
    assert "count_branch1" in said
    assert "note" not in state.variables
    assert "count" not in state.variables, "none of the writes of that superstep was half-applied"
    assert state.variables["log"] == BRANCHES


# ---- as wide as a list is --------------------------------------------------------------------


async def echoing(house, *, fails_first=()):
    """Let an executor echo items, each after a moment; some of them fail once."""
    executor = house.executor("e1")
    failed = set()

    @executor.tool()
    async def echo(item: object, place: int) -> object:
        await house.ledger.begin("echo")
        try:
            await asyncio.sleep(0)
            if place in fails_first and place not in failed:
                failed.add(place)
                raise Failed("ONCE", "the first time it fails", retryable=True)
            return item
        finally:
            await house.ledger.end("echo")

    await house.work(executor)


def fan_out(cap):
    graph = Graph("fan_out")
    graph.map("each", "vars.items", body="echo", max_concurrency=cap, output="echoed")
    graph.tool(
        "echo",
        "echo",
        {"item": "{{item}}", "place": "{{item_index}}"},
        retry=retry(first_delay="1ms"),
    )
    graph.assign("reduce", {"count": "size(vars.echoed)", "times": "1"})
    graph.reducer("times", "sum")
    graph.edge("each", "reduce")
    return graph


@pytest.mark.parametrize("cap", [1, 3, 0])
@pytest.mark.parametrize("width", [0, 1, 7])
async def test_work_for_a_list_of_any_width_comes_together_once_and_in_order(
    house, client, width, cap
):
    await echoing(house, fails_first=(3,))
    items = [{"n": number} for number in range(width)]
    if width > 5:
        items[5] = items[4]

    run = await client.start_run(fan_out(cap), variables={"items": items})
    row = await run.wait()
    events = await history(client, run.run_id)

    variables = (await run.state()).variables
    assert row.status == COMPLETED
    assert variables["echoed"] == items
    assert (variables["count"], variables["times"]) == (width, 1)
    assert completed(events).count("reduce") == 1
    assert house.ledger.calls["echo"] == width + (width > 3)
    if cap:
        assert house.ledger.most["echo"] <= cap


async def test_work_for_a_thousand_items_never_exceeds_its_cap(house, client):
    await echoing(house)
    items = list(range(1_000))

    run = await client.start_run(fan_out(3), variables={"items": items})
    row = await run.wait()

    assert row.status == COMPLETED
    assert (await run.state()).variables["echoed"] == items
    assert house.ledger.calls["echo"] == 1_000
    assert house.ledger.most["echo"] == 3


async def test_a_list_that_is_too_long_fails_before_any_of_its_work_starts(house, client):
    await echoing(house)

    run = await client.start_run(fan_out(0), variables={"items": list(range(10_001))})
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "FAN_OUT_LIMIT")
    assert "10001" in row.failure.message
    assert "10000" in row.failure.message
    assert house.ledger.calls["echo"] == 0


# ---- conditions that fail, and none that holds -----------------------------------------------


def routes(first):
    graph = Graph("routes")
    graph.assign("r")
    graph.assign("x")
    graph.assign("y")
    graph.edge("r", "x", when=expression(first), id="to_x")
    graph.edge("r", "y", when=expression("vars.n > 3"), id="to_y")
    graph.end("x", "y")
    return graph


@pytest.mark.parametrize(
    ("first", "variables", "code", "said"),
    [
        ("vars.dispach == 1", {"n": 1}, "EXPRESSION_FAILED", ["dispach", "to_x"]),
        ("vars.dispatch == 1", {"dispatch": 2}, "EXPRESSION_FAILED", ["vars.n > 3", "to_y"]),
        ("vars.dispatch == 1", {"dispatch": 2, "n": "7"}, "EXPRESSION_FAILED", ["to_y"]),
        ("vars.dispatch == 1", {"dispatch": 2, "n": 1}, "DEAD_END", ["to_x", "to_y"]),
    ],
)
async def test_a_condition_that_fails_is_never_read_as_false_and_a_dead_end_is_a_failure(
    client, first, variables, code, said
):
    run = await client.start_run(routes(first), variables=variables)
    row = await run.wait()

    failure = row.failure
    text = f"{failure.source} {failure.message} {dict(failure.details)}"
    text += " ".join(f"{cause.message} {dict(cause.details)}" for cause in failure.causes)
    assert (row.status, failure.code) == (FAILED, code), failure
    assert not [word for word in ("r", *said) if word not in text], text
    events = await history(client, run.run_id)
    assert "x" not in [event.node_completed.node_id for event in events]


# ---- caps ------------------------------------------------------------------------------------


def loop(cap, *, fallback):
    graph = Graph("loop", max_iterations=50)
    graph.tool("gen", "generate", {}, output="draft")
    graph.tool("review", "review", {})
    graph.assign("ok")
    graph.edge("gen", "review")
    graph.edge("review", "ok", when=state_equals("approved", "true"))
    graph.edge("review", "gen", when=expression("!has(vars.approved)"), max_traversals=cap - 1)
    graph.end("ok")
    if fallback:
        graph.assign("fallback", {"last": "vars.draft"})
        graph.edge("review", "fallback", when=otherwise())
        graph.end("fallback")
    return graph


async def reviewing(house):
    executor = house.executor("e1")

    @executor.tool()
    async def generate() -> int:
        return await house.ledger.note("gen")

    @executor.tool()
    async def review() -> str:
        await house.ledger.note("review")
        return "no"

    await house.work(executor)


@pytest.mark.parametrize("fallback", [True, False])
async def test_a_loop_with_a_cap_runs_exactly_so_often_and_then_does_as_it_was_told(
    house, client, fallback
):
    await reviewing(house)

    run = await client.start_run(loop(3, fallback=fallback))
    row = await run.wait()

    state = await run.state()
    assert house.ledger.calls == {"gen": 3, "review": 3}
    assert state.variables["draft"] == 3, "the last state can be read"
    if fallback:
        assert (row.status, row.result.terminal_node) == (COMPLETED, "fallback")
        assert state.variables["last"] == 3
    else:
        assert (row.status, row.failure.code) == (FAILED, "DEAD_END")
        assert "spent" in str(row.failure).lower()


async def test_the_cap_on_supersteps_is_told_apart_and_its_last_one_is_not_started(house, client):
    await reviewing(house)
    graph = loop(1_000, fallback=False)
    graph.edge("review", "ok", when=iteration_exceeds(100))

    run = await client.start_run(graph, max_iterations=4)
    row = await run.wait()

    assert (row.status, row.failure.code) == (FAILED, "MAX_ITERATIONS")
    assert (row.iterations, house.ledger.calls["gen"]) == (4, 2)
    assert row.failure.details["iterations"] == "4"


async def test_a_cap_counts_on_over_a_restart(tmp_path):
    data = tmp_path / "runs.db"
    graph = loop(3, fallback=True)
    async with house_with_server(data) as (house, _):
        await reviewing(house)
        client = await house.client()
        built = graph.build()
        built.nodes[1].interrupt = True  # each review waits for a person
        run = await client.start_run(built)
        await answer_next(client, run.run_id, 1)
        await happened(client, run.run_id, "interrupt_opened", 2)
        first = dict(house.ledger.calls)
    async with house_with_server(data) as (house, _):
        await reviewing(house)
        client = await house.client()
        for number in (2, 3):
            await answer_next(client, run.run_id, number)
        row = await (await client.run(run.run_id)).wait()
        events = await history(client, run.run_id)

    assert (row.status, row.result.terminal_node) == (COMPLETED, "fallback")
    assert first["gen"] + house.ledger.calls["gen"] == 3
    assert kinds(events).count("superstep_started") == 7


async def answer_next(client, run_id, number):
    opened = await happened(client, run_id, "interrupt_opened", number)
    await client.answer(opened.interrupt_opened.question.interrupt_id, proceed())
