"""The step programs in examples/steps do what they say, each in front of a server of its own."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.example_stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_offers_are_taken_as_they_come(stage: Stage) -> None:
    """One shop answers, one is closed, and one is too slow."""
    printed = ast.literal_eval(stage.run("steps/await_effects.py"))
    assert printed == {
        "offers": {"market": 9.5, "corner": "CLOSED"},
        "note": "Take the market's offer.",
    }


def test_files_are_mapped_and_reduced(stage: Stage) -> None:
    """Every page of docs/ was read, and the file that there is not stopped nobody."""
    printed = ast.literal_eval(stage.run("steps/spawn_map_reduce.py"))
    assert printed["files"] == len(list((ROOT / "docs").rglob("*.md")))
    assert printed["unread"] == 1
    assert len(printed["most"]) >= 9


def test_letters_go_to_specialists(stage: Stage) -> None:
    """Each by its topic, with what the triage has found out."""
    assert stage.run("steps/goto_triage.py").splitlines() == [
        "billing takes a case about an invoice",
        "technical takes a case about a lamp",
    ]


def test_a_claim_waits_for_people_banks_and_months(stage: Stage) -> None:
    """Paid and booked, refused by the bank, refused by the manager."""
    assert stage.run("steps/suspend_claim.py").splitlines() == [
        "booked receipt-1 in May",
        "the bank says NO_MONEY",
        "nothing is paid",
    ]
