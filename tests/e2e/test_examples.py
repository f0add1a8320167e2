"""The programs in examples/ do what they say, each in front of a server of its own."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.support.example_stage import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_hello(stage: Stage) -> None:
    """The smallest executor, graph and run."""
    assert stage.run("hello.py") == "Hello, world!\n"


def test_a_person_approves_single_tools(stage: Stage) -> None:
    """What was changed and approved is what ran; what was refused is told to the model, with the reason."""
    assert stage.run("approve_tools.py").splitlines() == [
        'Call transfer? {"to": "landlord", "amount": 900}',
        'Call transfer? {"to": "stranger", "amount": 50}',
        "120 on rent; sent 90 to landlord; A person did not approve this call: we don't know them",
    ]


def test_a_fork_with_another_result(stage: Stage) -> None:
    """What had been done before the fork is not done again."""
    printed = stage.run("fork_with_result.py")
    assert re.search(r"the run:  declined, it costs 113; called find_supplier, price\n", printed)
    assert re.search(r"the fork: ordered at the lamp shop; called order\n", printed)


def test_child_runs_that_ask(stage: Stage) -> None:
    """Each claim is a run of its own; a refusal of one is a failure among the results of the others."""
    printed = stage.run("child_runs.py")
    asked = [line for line in printed.splitlines() if line.startswith("a child run asks")]
    assert sorted(asked) == [
        "a child run asks: Pay 900 for the hotel?",
        "a child run asks: Pay 9000 for the yacht?",
    ]
    found = json.loads(printed[printed.index("[") :])
    assert found[:2] == ["paid 40 for the train", "paid 900 for the hotel"]
    assert found[2]["failure"]["code"] == "ABORTED_BY_PERSON"
