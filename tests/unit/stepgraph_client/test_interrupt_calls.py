from __future__ import annotations

import pytest

from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph_client.answers import abort, proceed
from stepgraph_client.errors import NotFound, WrongState
from stepgraph_client.identity import caller_name
from tests.support.fake_server import LOST


@pytest.fixture
def questions(server):
    for n in range(3):
        server.questions[f"q{n}"] = Interrupt(
            interrupt_id=f"q{n}", run_id=f"r{n}", status=InterruptStatus.INTERRUPT_STATUS_OPEN
        )
    return server.questions


async def test_open_questions_are_listed_over_all_runs_or_of_one(client, questions) -> None:
    assert [each.interrupt_id async for each in client.interrupts()] == ["q0", "q1", "q2"]
    assert [each.interrupt_id async for each in client.interrupts("r1")] == ["q1"]
    assert (await client.get_interrupt("q2")).run_id == "r2"


async def test_an_answer_says_who_gave_it_and_is_safe_to_repeat(client, server, questions) -> None:
    server.refuse("AnswerInterrupt", LOST)
    assert (await client.answer("q0", proceed())).answered_by == caller_name()
    assert (await client.answer("q1", proceed(), answered_by="ada")).answered_by == "ada"
    first, second, _ = server.requests["AnswerInterrupt"]
    assert first.request_id == second.request_id != ""
    status = InterruptStatus.INTERRUPT_STATUS_ANSWERED
    assert [each.interrupt_id async for each in client.interrupts(status=status)] == ["q0", "q1"]


async def test_the_first_answer_counts_and_the_other_learns_who_gave_it(client, questions) -> None:
    await client.answer("q0", proceed(), answered_by="ada")
    await client.answer("q0", proceed(), answered_by="bob")
    with pytest.raises(WrongState) as caught:
        await client.answer("q0", abort("no"))
    assert caught.value.reason == "INTERRUPT_ANSWERED"


async def test_another_system_answers_by_its_token(client, server, questions) -> None:
    server.questions["token"] = questions["q0"]
    await client.answer_external("token", proceed(), answered_by="ci")
    assert server.requests["AnswerInterrupt"][0].external_token == "token"


async def test_a_question_that_is_not_there_is_not_found(client) -> None:
    with pytest.raises(NotFound):
        await client.get_interrupt("nope")
