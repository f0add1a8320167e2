"""Many courses of the whole server, in which everything goes wrong that can; and proof that they would show a fault of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the simulation in a process of its own, which forks one for each seed."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("protos", "server", "client", "."))
    return subprocess.run(
        (sys.executable, "-m", "tests.simulation", *arguments),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.timeout(600)
def test_nothing_is_lost_or_done_twice_whatever_goes_wrong() -> None:
    """200 seeds; `make simulate` plays more, and its output says how to play one of them again."""
    done = simulate("--seeds", "200")
    assert done.returncode == 0, done.stdout + done.stderr
    last = done.stdout.splitlines()[-1]
    assert last.startswith("200 seeds, "), last
    assert last.endswith("every invariant held"), last


def test_a_seed_is_the_same_course_every_time() -> None:
    """Else a failure could not be played again."""
    first, second = simulate("--seeds", "3", "--trace"), simulate("--seeds", "3", "--trace")
    assert "FAULT" in first.stdout
    assert _untimed(first.stdout) == _untimed(second.stdout)


def _untimed(text: str) -> list[str]:
    # The courses are played side by side, and the last line says how long that took.
    return sorted(text.splitlines()[:-1])


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("sabotage", "seen_as"),
    [
        ("acknowledge_early", "got ACK_VERDICT_ACCEPTED, and nothing is durable"),
        ("believe_anybody", "and without faults"),
        ("forget_requests", "RUN_EXISTS"),
        ("keep_slots", "slots are taken"),
        ("lose_attempts", "all is over, and there are still"),
        ("skip_events", "got event"),
    ],
)
def test_a_fault_of_the_server_is_found_and_made_small(sabotage: str, seen_as: str) -> None:
    """Each breaks one promise of the server, and is found by the check that is there for it, with few faults."""
    done = simulate("--seeds", "60", "--sabotage", sabotage)
    assert done.returncode == 1, f"{sabotage} was not found: {done.stdout}"
    assert seen_as in done.stdout, done.stdout
    assert "play it again: make simulate SEEDS=1 START=" in done.stdout
