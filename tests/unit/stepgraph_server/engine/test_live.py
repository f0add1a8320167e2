"""Replies, and runs in memory."""

from __future__ import annotations

import asyncio

import pytest

from stepgraph_server.core.inputs import Look
from stepgraph_server.engine.live import Delivery, FutureReply, LiveRun
from stepgraph_server.storage.records import RunKey
from tests.support.engine_time import in_virtual_time

RUN = LiveRun(key=RunKey("default", "r1"))


def reply() -> tuple[asyncio.Future[int], FutureReply[int]]:
    waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    return waiter, FutureReply(waiter, lambda run: len(run.pending) + 7)


@in_virtual_time
async def test_a_reply_gives_what_was_made_when_it_was_decided():
    waiter, made = reply()
    made.decided(RUN)
    assert not waiter.done()
    assert made.made == 7
    made.done()
    assert await waiter == 7


@in_virtual_time
async def test_a_reply_gives_an_error():
    waiter, made = reply()
    made.failed(KeyError("a"))
    with pytest.raises(KeyError):
        await waiter


@in_virtual_time
async def test_whoever_has_gone_away_hears_nothing():
    waiter, made = reply()
    waiter.cancel()
    made.decided(RUN)
    made.done()
    made.failed(KeyError("a"))
    assert waiter.cancelled()


def test_a_delivery_is_lost_with_a_failure_unless_it_says_otherwise():
    assert not Delivery(happened=Look()).keep


def test_runs_are_told_apart_by_who_they_are_not_by_what_they_hold():
    assert LiveRun(key=RUN.key) != RUN
    assert LiveRun(key=RUN.key).pending is not RUN.pending
