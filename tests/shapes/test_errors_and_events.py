"""Errors that are caught or tried again, and events that are waited for."""

from __future__ import annotations

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
    live = await stage.begin("listen", {}, delay="200ms" if early else "0s")
    events = [{"kind": kind, "value": n} for n, kind in enumerate("abac")]
    for event in events[:early]:
        await live.signal("event", event)
    await live.until("superstep_started")
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
    await live.handle.cancel()
