"""Scenarios of answers: many people at once, and a click that is sent again. One server; replicas are left out."""

from __future__ import annotations

import asyncio
from collections import Counter

import grpc.aio
import pytest

from stepgraph.v1 import interrupt_service_pb2
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, WrongState, abort, proceed, state_equals
from stepgraph_client.errors import read_status
from tests.support.e2e_house import happened, house_with_server

ROUNDS = 15
PEOPLE = 20


def decision():
    graph = Graph("decision")
    graph.approval("ask", "Go on?")
    graph.tool("deploy", "act", {"what": "deploy {{run}}"}, output="did")
    graph.tool("cleanup", "act", {"what": "cleanup {{run}}"}, output="did")
    graph.edge("ask", "deploy", when=state_equals("_approval", "proceed"))
    graph.edge("ask", "cleanup", when=state_equals("_approval", "abort"))
    graph.end("deploy", "cleanup")
    return graph


@pytest.fixture(params=["memory", "file"])
async def house(request, tmp_path):
    data = tmp_path / "runs.db" if request.param == "file" else None
    async with house_with_server(data) as (house, _):
        executor = house.executor("e1")

        @executor.tool()
        async def act(what: str) -> str:
            await house.ledger.note(what)
            return what

        await house.work(executor)
        client = await house.client()
        await client.register_graph(decision())
        yield house


async def ask(client, number):
    run = await client.start_run("decision", variables={"run": str(number)})
    opened = await happened(client, run.run_id, "interrupt_opened")
    return run, opened.interrupt_opened.question.interrupt_id


async def test_of_many_answers_at_once_exactly_one_counts_and_what_follows_runs_once(house):
    client = await house.client()
    other = await house.client()
    winners = Counter()

    for number in range(ROUNDS):
        run, question = await ask(client, number)
        answers = [proceed() if person % 2 else abort("no") for person in range(PEOPLE)]
        given = await asyncio.gather(
            *(
                (client, other)[person % 2 == 0].answer(
                    question, answer, answered_by=f"person {person}"
                )
                for person, answer in enumerate(answers)
            ),
            return_exceptions=True,
        )
        row = await run.wait()

        [winner] = {each.answered_by for each in given if not isinstance(each, BaseException)}
        kind = answers[int(winner.split()[1])].WhichOneof("kind")
        won = [each for each in given if not isinstance(each, BaseException)]
        # The same answer again is fine, whoever gives it; it changes nothing and shows who was first.
        assert {each.answer.WhichOneof("kind") for each in won} == {kind}
        lost = [each for each in given if isinstance(each, BaseException)]
        assert len(lost) == PEOPLE // 2
        for error in lost:
            assert isinstance(error, WrongState)
            assert error.reason in {"INTERRUPT_CLOSED", "INTERRUPT_ANSWERED", "RUN_ENDED"}
        assert row.status == RunStatus.RUN_STATUS_COMPLETED
        taken = "deploy" if kind == "proceed" else "cleanup"
        assert row.result.terminal_node == taken
        assert house.ledger.calls[f"{taken} {number}"] == 1
        winners[kind] += 1

    assert sum(house.ledger.calls.values()) == ROUNDS


async def test_a_click_that_is_sent_again_gets_the_first_answer_even_after_the_run_has_ended(house):
    client = await house.client()
    run, question = await ask(client, 0)
    stub = client._stubs.interrupts

    def click(answer, request_id):
        return stub.AnswerInterrupt(
            interrupt_service_pb2.AnswerInterruptRequest(
                interrupt_id=question, answer=answer, answered_by="Ada", request_id=request_id
            )
        )

    first = await click(proceed(), "click")
    again = await asyncio.gather(*(click(proceed(), "click") for _ in range(5)))
    await run.wait()
    later = await click(proceed(), "click")

    assert {each.SerializeToString(deterministic=True) for each in [*again, later]} == {
        first.SerializeToString(deterministic=True)
    }
    for answer, request_id, reasons in (
        (abort("no"), "click", {"REQUEST_ID_REUSED"}),
        (abort("no"), "other", {"RUN_ENDED", "INTERRUPT_ANSWERED"}),
    ):
        refused = await refusal(click(answer, request_id))
        assert refused.reason in reasons
    assert house.ledger.calls == {"deploy 0": 1}


async def test_who_loses_is_shown_the_answer_that_won(house):
    client = await house.client()
    run, question = await ask(client, 0)
    await client.answer(question, abort("not today"), answered_by="Ada")

    with pytest.raises(WrongState) as caught:
        await client.answer(question, proceed(), answered_by="Bob")
    await run.wait()

    found = await client.get_interrupt(question)
    said = str(caught.value) + str(caught.value.metadata)
    assert caught.value.reason in {"INTERRUPT_ANSWERED", "RUN_ENDED"}
    assert (found.answered_by, found.answer.abort.reason) == ("Ada", "not today")
    assert "Ada" in said or caught.value.reason == "RUN_ENDED"


async def refusal(call):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return read_status(caught.value)
