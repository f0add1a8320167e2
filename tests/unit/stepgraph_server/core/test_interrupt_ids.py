"""Ids of interrupts: the same whenever they are made again, and of no other run or event."""

from __future__ import annotations

from stepgraph_server.core.interrupt_ids import interrupt_id


def test_an_id_is_made_of_its_run_and_its_event() -> None:
    assert interrupt_id("r1", 5) == interrupt_id("r1", 5)
    assert len({interrupt_id("r1", 5), interrupt_id("r1", 6), interrupt_id("r2", 5)}) == 3


def test_an_id_can_be_typed() -> None:
    assert interrupt_id("a" * 128, 200_000).startswith("q-")
    assert len(interrupt_id("a" * 128, 200_000)) == 14
