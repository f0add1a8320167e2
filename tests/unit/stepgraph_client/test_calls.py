from __future__ import annotations

import grpc
import pytest

from stepgraph_client.calls import MAX_RETRY_AFTER_S, Caller, Patience
from stepgraph_client.errors import Status, TooMuch, Unreachable
from tests.support.fake_server import Refusal


class Sleeps(list[float]):
    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


def error(code=grpc.StatusCode.UNAVAILABLE) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="lost")


def caller(sleeps: Sleeps, **patience: float) -> Caller:
    return Caller("here:1", Patience(**patience), chance=lambda: 1.0, sleep=sleeps)


async def test_a_lost_call_is_made_again_after_growing_delays() -> None:
    sleeps = Sleeps()
    outcomes = [error(), error(grpc.StatusCode.INTERNAL), error(), "answer"]

    async def attempt():
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await caller(sleeps).retried(attempt) == "answer"
    assert sleeps == [0.1, 0.2, 0.4]


async def test_retries_are_bounded_and_then_the_server_is_unreachable() -> None:
    sleeps = Sleeps()

    async def attempt():
        raise error()

    with pytest.raises(Unreachable) as caught:
        await caller(sleeps, max_tries=3).retried(attempt)
    assert (caught.value.tries, caught.value.server, len(sleeps)) == (3, "here:1", 2)


def test_delays_are_jittered_and_capped() -> None:
    patience = Patience(first_delay_s=1, factor=2, max_delay_s=10)
    assert [patience.delay_s(n, 0.0) for n in (1, 2, 3, 9)] == [0.5, 1, 2, 5]
    assert [patience.delay_s(n, 1.0) for n in (1, 2, 3, 9, 100_000)] == [1, 2, 4, 10, 10]


async def test_a_refusal_is_not_tried_again(client, server) -> None:
    with pytest.raises(Exception, match="there is no run r"):
        await client.get_run("r")
    assert len(server.requests["GetRun"]) == 1


async def test_a_server_that_is_busy_is_asked_when_it_said(client, server) -> None:
    server.add_run("r")
    busy = Refusal(code=grpc.StatusCode.RESOURCE_EXHAUSTED, reason="OVERLOADED", retry_after_s=0.02)
    server.refuse("GetRun", busy)
    assert (await client.get_run("r")).run_id == "r"
    server.refuse("GetRun", busy, busy, busy, busy)
    with pytest.raises(TooMuch):
        await client.get_run("r")


async def test_a_server_can_not_make_a_caller_wait_for_ever() -> None:
    sleeps = Sleeps()
    away = caller(sleeps)
    status = Status(code=grpc.StatusCode.UNAVAILABLE, message="", metadata={}, retry_after_s=1e9)
    await away.pause(Patience(), 1, status)
    assert sleeps == [MAX_RETRY_AFTER_S]
