"""Scenarios of child runs, over the wire: people in them, a tree that is watched, stopped, listed and explained. One server."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, GraphInvalid, InvalidRequest, NotFound, StepContext, proceed
from stepgraph_client.errors import read_status
from tests.support.e2e_house import PATIENCE_S, happened, history, house_with_server, kinds


def inner() -> Graph:
    """A graph that asks a person, then works."""
    graph = Graph("inner")
    graph.approval("ask", "Look up {{topic}}?")
    graph.tool("look", "act", {"what": "{{topic}}"}, output="found")
    graph.edge("ask", "look")
    graph.end("look")
    return graph


def outer(graph: Graph | str = "inner") -> Graph:
    """A graph that runs another one."""
    made = Graph("outer")
    given = {"topic": "{{subject}}"}
    made.subgraph("research", graph, input=given, output_variables={"answer": "found"})
    made.end("research")
    return made


@pytest.fixture(params=["memory", "file"])
async def house(request, tmp_path):
    data = tmp_path / "runs.db" if request.param == "file" else None
    async with house_with_server(data) as (house, _):
        executor = house.executor("e1")

        @executor.tool()
        async def act(what: str) -> str:
            await house.ledger.begin(what)
            if what == "slow":
                await asyncio.sleep(PATIENCE_S)
            return f"all about {what}"

        @executor.step("prog")
        async def prog(ctx: StepContext) -> object:
            return await ctx.graph("leaf", {"topic": "bees"})

        await house.work(executor)
        yield house


async def test_a_child_run_asks_and_its_root_has_the_answer(house):
    """It is a run like any other; lists, questions and explanations lead from one to the other."""
    client = await house.client()
    await client.register_graph(inner())
    run = await client.start_run(outer(), variables={"subject": "bees"})
    await happened(client, run.run_id, "child_status_changed")
    root = await client.get_run(run.run_id)
    assert root.status == RunStatus.RUN_STATUS_SUSPENDED
    roots = [each.run_id async for each in client.list_runs(roots_only=True)]
    everything = [each async for each in client.list_runs()]
    assert roots == [run.run_id]
    [child] = [each for each in everything if each.run_id not in roots]
    assert (child.parent.run_id, child.root_run_id) == (run.run_id, run.run_id)
    explained = await client.explain(run.run_id)
    assert [wait.child_run_id for wait in explained.waits] == [child.run_id]
    assert f"stepgraph runs explain {child.run_id}" in explained.waits[0].description
    below = [each async for each in client.interrupts(run.run_id, include_descendants=True)]
    assert [each.run_id for each in below] == [child.run_id]
    assert [each async for each in client.interrupts(run.run_id)] == []
    await client.answer(below[0].interrupt_id, proceed())
    ended = await run.wait()
    assert ended.status == RunStatus.RUN_STATUS_COMPLETED
    assert await run.result() == "all about bees"
    state = await client.state(run.run_id)
    assert state.variables["answer"] == "all about bees"
    assert house.ledger.calls == {"bees": 1}


async def test_a_tree_is_watched_as_one_and_the_watch_goes_on_where_it_was(house):
    """From the beginning to the root's end, with every event of each run once and in its order."""
    client = await house.client()
    await client.register_graph(inner())
    run = await client.start_run(outer(), variables={"subject": "bees"})
    await happened(client, run.run_id, "child_status_changed")
    seen: dict[str, list[int]] = {}
    token, answered = "", False
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with aclosing(client.watch_tree(run.run_id, resume_token=token)) as news:
                async for each in news:
                    seen.setdefault(each.run_id, []).append(each.event.sequence)
                    token = each.resume_token or token
                    if each.event.HasField("interrupt_opened") and not answered:
                        # Leave here, and come back with the token.
                        answered = True
                        question = each.event.interrupt_opened.question
                        await client.answer(question.interrupt_id, proceed())
                        break
                else:
                    break
    assert len(seen) == 2
    for run_id, sequences in seen.items():
        whole = [event.sequence for event in await history(client, run_id)]
        assert sorted(set(sequences)) == whole


async def test_only_a_root_has_a_tree(house):
    client = await house.client()
    await client.register_graph(inner())
    run = await client.start_run(outer(), variables={"subject": "bees"})
    began = await happened(client, run.run_id, "child_started")
    child = began.child_started.run_id
    with pytest.raises(InvalidRequest, match=run.run_id):
        async for _ in client.watch_tree(child):
            pass
    with pytest.raises(InvalidRequest, match=run.run_id):
        [each async for each in client.interrupts(child, include_descendants=True)]


async def test_a_cancel_goes_down_and_the_root_ends_last(house):
    client = await house.client()
    graph = Graph("inner")
    graph.tool("look", "act", {"what": "{{topic}}"})
    await client.register_graph(graph)
    made = Graph("outer")
    made.subgraph("research", "inner", input={"topic": "slow"})
    run = await client.start_run(made)
    await house.ledger.called("slow")
    began = await happened(client, run.run_id, "child_started")
    await client.cancel(run.run_id, "enough")
    assert (await run.wait()).status == RunStatus.RUN_STATUS_CANCELLED
    child = await client.get_run(began.child_started.run_id)
    assert child.status == RunStatus.RUN_STATUS_CANCELLED
    assert "enough" in child.failure.message


async def test_a_program_that_runs_a_graph_has_its_output(house):
    """Whatever it names is fixed for the whole tree when it is named first."""
    client = await house.client()
    leaf = Graph("leaf")
    leaf.assign("end", {"said": "vars.input.topic + '!'"}, output="ended")
    leaf.tool("look", "act", {"what": "{{said}}"})
    leaf.edge("end", "look")
    await client.register_graph(leaf)
    made = Graph("outer")
    made.step("p", "prog")
    run = await client.start_run(made)
    assert await run.result() == "all about bees!"
    [fact] = [
        each for each in await history(client, run.run_id) if each.HasField("graphs_resolved")
    ]
    assert [each.reference for each in fact.graphs_resolved.graphs] == ["leaf"]


async def test_what_is_not_there_is_told_when_it_is_registered_and_when_it_is_started(house):
    client = await house.client()
    registered = await client.register_graph(outer("gone"))
    [warning] = [each for each in registered.warnings if each.code == "GRAPH_NOT_THERE"]
    assert warning.path == "nodes[0].action.subgraph.graph.reference"
    with pytest.raises(NotFound, match="outer: nodes") as refused:
        await client.start_run("outer")
    assert read_status(refused.value.__cause__).reason == "GRAPH_NOT_FOUND"
    made = Graph("program")
    made.step("p", "prog")
    run = await client.start_run(made)
    ended = await run.wait()
    assert (ended.status, ended.failure.code) == (RunStatus.RUN_STATUS_FAILED, "GRAPH_NOT_FOUND")
    assert "task_failed" in kinds(await history(client, run.run_id))


async def test_a_graph_inside_a_graph_is_checked_with_it(house):
    client = await house.client()
    bad = Graph("bad")
    bad.tool("a", "act", {"what": "{{"})
    with pytest.raises(GraphInvalid, match=r"definition\.nodes"):
        await client.register_graph(outer(bad))
