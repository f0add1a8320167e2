"""A failure with as few faults as it needs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: So many courses are played to make one smaller, and for so many seconds.
MOST_TRIES = 150
MOST_S = 90.0


def shrink(names: Sequence[str], fails: Callable[[frozenset[str]], bool]) -> list[str]:
    """Return a part of the names with which it fails too, in their order; ever smaller parts of it are left out."""
    left = list(names)
    size = max(1, len(left) // 2)
    tries, until = 0, time.monotonic() + MOST_S
    while left:
        is_smaller = False
        start = 0
        while start < len(left) and tries < MOST_TRIES and time.monotonic() < until:
            candidate = left[:start] + left[start + size :]
            tries += 1
            if fails(frozenset(candidate)):
                left, is_smaller = candidate, True
            else:
                start += size
        if tries >= MOST_TRIES or time.monotonic() >= until or (size == 1 and not is_smaller):
            break
        size = max(1, size // 2)
    return left


__all__ = ["shrink"]
