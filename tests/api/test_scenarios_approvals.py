"""Scenarios of approvals on a real server: several calls of one turn, many people at once, and restarts while they think."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from stepgraph.v1.conversation_pb2 import ROLE_TOOL, ContentBlock, Message, ToolCallBlock
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import (
    Client,
    Graph,
    WrongState,
    has_tool_calls,
    is_final_answer,
    proceed,
    proceed_with,
    revise,
)
from stepgraph_client.errors import StepgraphError
from tests.support.e2e_house import House, happened, house_with_server

PEOPLE = 20


def agent() -> Graph:
    graph = Graph("payments")
    graph.llm("think", model="clerk", tools=True)
    graph.run_tools("act")
    graph.assign("done")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("act", "think")
    graph.edge("think", "done", when=is_final_answer())
    return graph


def call(name: str, args: str) -> ContentBlock:
    # The provider gives all calls the same id: nothing may depend on it.
    return ContentBlock(tool_call=ToolCallBlock(id="call_1", name=name, args=args))


async def employ(house: House) -> None:
    """Let an executor work that counts what is paid and looked up; each model asks once, then tells what it read."""
    executor = house.executor("e1")

    @executor.tool()
    async def look(what: str) -> str:
        await house.ledger.note(f"look {what}")
        return f"saw {what}"

    @executor.tool(requires_approval=True)
    async def pay(amount: int) -> str:
        await house.ledger.note(f"pay {amount}")
        return f"paid {amount}"

    @executor.model("clerk")
    def clerk(request) -> Message | str:
        results = [each for each in request.messages if each.role == ROLE_TOOL]
        if results:
            return "; ".join(each.content[0].tool_result.content[0].text.text for each in results)
        calls = [call("look", '{"what": "a"}')]
        calls += [call("pay", f'{{"amount": {amount}}}') for amount in (1, 2, 3)]
        return Message(content=calls)

    await house.work(executor)


async def open_questions(client: Client, run_id: str) -> dict[str, str]:
    """Return the questions of a run by the arguments of the call."""
    return {each.tool.args: each.interrupt_id async for each in client.interrupts(run_id)}


async def test_calls_of_one_turn_are_answered_in_any_order_over_a_restart(tmp_path):
    data = tmp_path / "runs.db"
    async with house_with_server(data) as (house, _):
        client = await house.client()
        await employ(house)
        run = await client.start_run(agent())
        await happened(client, run.run_id, "interrupt_opened", 3)
        asked = await open_questions(client, run.run_id)
        assert len(asked) == 3
        await house.ledger.called("look a")
        await client.answer(asked['{"amount": 2}'], revise("too much"))
        assert len(await open_questions(client, run.run_id)) == 2
    async with house_with_server(data) as (house, _):
        client = await house.client()
        await employ(house)
        again = await open_questions(client, run.run_id)
        assert again == {args: asked[args] for args in ('{"amount": 1}', '{"amount": 3}')}
        with pytest.raises(StepgraphError) as unknown:
            await client.answer("q-000000000000", proceed())
        assert unknown.value.reason == "INTERRUPT_NOT_FOUND"
        with pytest.raises(StepgraphError) as wrong:
            await client.answer(asked['{"amount": 1}'], proceed_with(tool_args={"amount": "x"}))
        assert wrong.value.reason == "ANSWER_INVALID"
        await client.answer(asked['{"amount": 3}'], proceed())
        await client.answer(asked['{"amount": 1}'], proceed_with(tool_args={"amount": 10}))
        await client.answer(asked['{"amount": 2}'], revise("too much"))
        handle = await client.run(run.run_id)
        assert (await handle.wait()).status == RunStatus.RUN_STATUS_COMPLETED
        assert await handle.result() == (
            "saw a; paid 10; A person did not approve this call: too much; paid 3"
        )
        assert house.ledger.calls == Counter({"pay 10": 1, "pay 3": 1})


async def test_of_many_people_one_approves_and_the_tool_is_called_once():
    async with house_with_server(None) as (house, _):
        client = await house.client()
        await employ(house)
        run = await client.start_run(agent())
        await happened(client, run.run_id, "interrupt_opened", 3)
        asked = await open_questions(client, run.run_id)
        assert len(asked) == 3
        for question in asked.values():

            async def settle(number: int, question: str = question) -> str:
                answer = proceed() if number % 2 else revise(f"{number} says no")
                try:
                    await client.answer(question, answer, answered_by=f"p{number}")
                except WrongState as lost:
                    return lost.reason
                return "won"

            said = Counter(await asyncio.gather(*map(settle, range(PEOPLE))))
            # The same answer again is fine: all who approve say the same.
            assert said["won"] in (1, PEOPLE // 2)
            assert said["won"] + said["INTERRUPT_ANSWERED"] + said["RUN_ENDED"] == PEOPLE
        await run.wait()
        assert all(count == 1 for count in house.ledger.calls.values())
