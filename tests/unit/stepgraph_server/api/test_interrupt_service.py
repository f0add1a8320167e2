"""Questions are found, listed and answered, by id or by the token that they wait for."""

from __future__ import annotations

import pytest

from stepgraph.v1 import interrupt_pb2
from stepgraph.v1 import interrupt_service_pb2 as pb
from stepgraph_server.api.interrupt_service import InterruptService
from stepgraph_server.storage.records import RunKey

RUN = RunKey("default", "r1")
PROCEED = interrupt_pb2.InterruptAnswer(proceed={})


@pytest.fixture
async def service(store, engine, pages):
    await engine.create(RUN)
    return InterruptService(
        interrupts=store.interrupts,
        runs=store.runs,
        values=store.values,
        engine=engine,
        pages=pages,
    )


async def test_a_question_is_answered_by_its_id(service, engine, context):
    request = pb.AnswerInterruptRequest(interrupt_id="i1", answer=PROCEED, answered_by="Ada")

    response = await service.AnswerInterrupt(request, context)

    assert response.question.interrupt_id == "i1"
    assert engine.answers == [("i1", PROCEED, "Ada")]


async def test_a_question_is_answered_by_its_token(service, engine, context):
    await engine.ask(RUN, "i1", token="secret-token")
    request = pb.AnswerInterruptRequest(external_token="secret-token", answer=PROCEED)

    await service.AnswerInterrupt(request, context)

    assert engine.answers == [("i1", PROCEED, "")]


async def test_a_token_that_nobody_waits_for_is_not_found(service, context, reason_of):
    request = pb.AnswerInterruptRequest(external_token="x", answer=PROCEED)

    assert await reason_of(service.AnswerInterrupt(request, context)) == "INTERRUPT_NOT_FOUND"


async def test_a_question_is_read_by_its_id(service, engine, context, reason_of):
    await engine.ask(RUN, "i1")

    response = await service.GetInterrupt(pb.GetInterruptRequest(interrupt_id="i1"), context)

    assert response.question.run_id == "r1"
    missing = service.GetInterrupt(pb.GetInterruptRequest(interrupt_id="i2"), context)
    assert await reason_of(missing) == "INTERRUPT_NOT_FOUND"


async def test_open_questions_are_listed_oldest_first_in_pages(service, engine, context):
    other = RunKey("default", "r2")
    await engine.create(other)
    for key, interrupt_id in ((RUN, "i1"), (other, "i2"), (RUN, "i3")):
        await engine.ask(key, interrupt_id)

    first = await service.ListInterrupts(pb.ListInterruptsRequest(), context)
    second = await service.ListInterrupts(
        pb.ListInterruptsRequest(page_token=first.next_page_token), context
    )
    of_one = await service.ListInterrupts(pb.ListInterruptsRequest(run_id="r1"), context)
    answered = await service.ListInterrupts(
        pb.ListInterruptsRequest(status=interrupt_pb2.INTERRUPT_STATUS_ANSWERED), context
    )

    assert [q.interrupt_id for q in first.questions] == ["i1", "i2"]
    assert [q.interrupt_id for q in second.questions] == ["i3"]
    assert [q.interrupt_id for q in of_one.questions] == ["i1", "i3"]
    assert not answered.questions


async def test_questions_of_a_run_and_its_children_are_listed_by_the_root(service, engine, context):
    other = RunKey("default", "r2")
    await engine.create(other)
    for key, interrupt_id in ((RUN, "i1"), (other, "i2")):
        await engine.ask(key, interrupt_id)

    request = pb.ListInterruptsRequest(run_id="r1", include_descendants=True)
    listed = await service.ListInterrupts(request, context)

    assert [q.interrupt_id for q in listed.questions] == ["i1"]
