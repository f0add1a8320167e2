"""Faults by chance: each is an opportunity that was taken, and has a name of its own.

Rules: `kind:number` names the number-th opportunity of a kind in a course. A course that is played again with the same seed and the
same names is the same course; so a course is made smaller by playing it with fewer names. Every kind has dice of its own, and how
often it happens is chosen anew for each seed: some courses have no crash and many broken streams, others the reverse.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: How likely a fault is at each of its opportunities.
RATES: dict[str, float] = {
    # At each commit.
    "crash.before": 0.012,
    "crash.within": 0.02,
    "crash.after": 0.012,
    "disk.slow": 0.05,
    "disk.full": 0.01,
    "disk.unknown": 0.03,
    "disk.mixed": 0.05,
    # At each read.
    "disk.unreadable": 0.006,
    # At each tick of the world, twice a second.
    "crash.any": 0.012,
    "server.stop": 0.006,
    "clock.forward": 0.01,
    "clock.back": 0.004,
    "loop.asleep": 0.004,
    "exec.die": 0.025,
    "exec.twin": 0.01,
    "exec.bye": 0.008,
    "exec.resize": 0.008,
    "exec.stop": 0.01,
    "exec.garbage": 0.01,
    "exec.stray": 0.04,
    "person.pause": 0.01,
    "person.cancel": 0.002,
    "person.signal": 0.01,
    "person.fork": 0.006,
    "person.look": 0.06,
    # At each frame.
    "net.reset": 0.012,
    "net.black_hole": 0.006,
    "net.given_up": 0.008,
    "net.slow": 0.03,
    # At each attempt.
    "exec.freeze": 0.015,
    "exec.slow": 0.03,
    "exec.reject": 0.02,
    "exec.fail": 0.04,
    "exec.wrong_kind": 0.02,
    "exec.oversize": 0.006,
    "exec.twice": 0.08,
    "exec.conflict": 0.06,
    "exec.ignores_cancel": 0.3,
    "exec.reads": 0.05,
    # At each call, and at each piece that a watcher gets.
    "call.lost": 0.03,
    "call.unanswered": 0.04,
    "call.twice": 0.05,
    "watch.leaves": 0.02,
    "watch.slow": 0.05,
}

#: No more than so many of a kind in one course: each of these costs much time, and few say as much as many.
MOST: dict[str, int] = {
    **{f"crash.{when}": 4 for when in ("before", "within", "after", "any")},
    "server.stop": 2,
    "disk.full": 3,
    "disk.unreadable": 3,
    "clock.forward": 4,
    "clock.back": 2,
    "loop.asleep": 2,
    "person.cancel": 1,
    "person.fork": 2,
}

_FACTORS = (0.0, 0.0, 0.5, 1.0, 1.0, 3.0)


class Faults:
    """The faults of one course. With `only`, exactly those that are named."""

    def __init__(self, seed: int, only: frozenset[str] | None, note: Callable[[str], None]) -> None:
        self._seed = seed
        self._only = only
        self._note = note
        self._dice = {kind: random.Random(f"{seed}/fault/{kind}") for kind in RATES}
        factors = random.Random(f"{seed}/factors")
        self._rates = {kind: rate * factors.choice(_FACTORS) for kind, rate in RATES.items()}
        self._chances: Counter[str] = Counter()
        self._taken: Counter[str] = Counter()
        #: Nothing goes wrong any more.
        self.over = False
        #: The names of those that happened, in order.
        self.happened: list[str] = []

    def strikes(self, kind: str) -> random.Random | None:
        """Say whether a fault happens now: dice for how it goes, or None."""
        number = self._chances[kind]
        self._chances[kind] += 1
        roll = self._dice[kind].random()
        if self.over:
            return None
        name = f"{kind}:{number}"
        if self._only is not None:
            if name not in self._only:
                return None
        elif roll >= self._rates[kind] or self._taken[kind] >= MOST.get(kind, 12):
            return None
        self._taken[kind] += 1
        self.happened.append(name)
        self._note(f"FAULT {name}")
        return random.Random(f"{self._seed}/{name}")


__all__ = ["MOST", "RATES", "Faults"]
