"""Errors that are caught or tried again, and events that are waited for."""

from __future__ import annotations

import asyncio

import pytest

from tests.shapes.stage import fails


async def test_an_order_that_is_there_is_invoiced(stage):
    order = {"id": 1, "items": ["bolt"]}
    run = await stage.play(
        "catch_error", {"get_order": [order], "send_invoice": ["sent"]}, input="1"
    )

    assert run.path == ["get_order", "archive", "send_invoice", "done"]
    assert run.asked["send_invoice"] == [{"order": order}]
    assert run.skipped == {"handle"}


async def test_an_order_that_is_missing_is_handled_and_not_invoiced(stage):
    run = await stage.play("catch_error", {"get_order": [fails("HTTP_404")]}, input="1")

    assert run.path == ["get_order", "handle", "archive", "done"]
    assert (run.status, run.end) == ("COMPLETED", "done")
    assert run.variables["error"] == "HTTP_404"
    assert run.variables["archived"] is True
    assert run.skipped == {"send_invoice"}


async def test_any_other_failure_is_not_caught(stage):
    run = await stage.play("catch_error", {"get_order": [fails("HTTP_403")]}, input="1")

    assert (run.status, run.failure) == ("FAILED", "HTTP_403")
    assert run.path == ["get_order"]


@pytest.mark.parametrize("early", [0, 2, 4])
async def test_four_events_of_any_kind_are_the_output_whenever_they_come(stage, early):
    live = await stage.begin("listen", {}, delay="1h" if early else "0s")
    events = [{"kind": kind, "value": n} for n, kind in enumerate("abac")]
    for event in events[:early]:
        await live.signal("event", event)
    if early:
        await stage.bench.advance("1h")
    for event in events[early:]:
        await live.signal("event", event)
    run = await live.over()

    assert run.path == ["listen", "done"]
    assert run.variables["events"] == events, "in the order of arrival"


async def test_three_events_are_not_enough(stage):
    live = await stage.begin("listen", {})
    for number in range(3):
        await live.signal("event", number)

    assert await live.status() == "SUSPENDED"
    await live.run.cancel()


async def test_a_call_is_tried_again_after_3_6_and_12_seconds(stage):
    down = fails("HTTP_503", retryable=True)
    run = await stage.play("retry_call", {"get_pet": [down, down, down, {"id": 1}]}, input="1")

    delays = [
        event.task_failed.retry_time.ToMicroseconds() - event.time.ToMicroseconds()
        for event in run.run.history.of("task_failed")
    ]
    assert delays == [3_000_000, 6_000_000, 12_000_000]
    assert (run.status, run.end) == ("COMPLETED", "done")
    assert run.variables["pet"] == {"id": 1}


async def test_a_call_is_tried_five_times_at_most(stage):
    down = fails("HTTP_503", retryable=True)
    run = await stage.play("retry_call", {"get_pet": [down] * 5}, input="1")

    assert (run.status, run.failure) == ("FAILED", "HTTP_503")
    assert run.run.attempts("get_pet") == [5]


@pytest.mark.parametrize("line", [fails("HTTP_404"), RuntimeError("a bug")])
async def test_no_other_error_is_tried_again(stage, line):
    run = await stage.play("retry_call", {"get_pet": [line]}, input="1")

    assert run.status == "FAILED"
    assert run.counts == {"get_pet": 1}


READINGS = {
    "record": lambda asked: f"{asked['reading']} of {asked['room']}",
    "report": ["reported"],
}


async def test_readings_of_one_room_are_recorded_in_one_order_and_reported(stage):
    live = await stage.begin("accumulate", READINGS, variables={"room": "r4"})
    await live.signal("humidity", 40, correlation="r4")
    await live.signal("temperature", 19, correlation="r5")
    await live.signal("temperature", 21.5, correlation="r4")
    run = await live.over()

    assert run.path == ["begin", "humidity temperature", "each", "report"]
    assert run.asked["report"] == [{"room": "r4", "readings": ["40 of r4", "21.5 of r4"]}]
    assert (run.status, run.end) == ("COMPLETED", "report")


async def test_readings_of_another_room_are_not_enough_and_an_hour_is_all_there_is(stage):
    live = await stage.begin("accumulate", {}, variables={"room": "r4"})
    await live.signal("humidity", 40, correlation="r4")
    await live.signal("temperature", 19, correlation="r5")

    assert await live.status() == "SUSPENDED"
    await stage.bench.advance("1h")
    run = await live.over()

    assert (run.status, run.failure) == ("FAILED", "TIME_LIMIT")
    assert run.variables["readings"] == [40], "what had come can be read"


async def test_who_comes_first_wins_and_the_other_is_told_to_stop(stage):
    stopped = asyncio.Event()

    async def never():
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    run = await stage.play(
        "compete",
        {"nurse": lambda _: never(), "doctor": ["a doctor"]},
        agents=("nurse", "doctor"),
        input="Room 4",
    )

    assert run.path == ["call", "done"]
    assert run.variables["came"] == "a doctor"
    assert run.counts == {"nurse": 1, "doctor": 1}
    async with asyncio.timeout(10):
        await stopped.wait()


async def test_who_fails_loses(stage):
    run = await stage.play(
        "compete",
        {"nurse": [fails("ILL")], "doctor": ["a doctor"]},
        agents=("nurse", "doctor"),
        input="Room 4",
    )

    assert run.variables["came"] == "a doctor"


async def test_if_all_fail_nobody_comes_and_the_run_says_why(stage):
    run = await stage.play(
        "compete",
        {"nurse": [fails("ILL")], "doctor": [fails("AWAY")]},
        agents=("nurse", "doctor"),
        input="Room 4",
    )

    causes = run.row.failure.causes
    assert run.status == "FAILED"
    assert [cause.code for cause in causes] == ["ILL", "AWAY"], "in the order of the list"
