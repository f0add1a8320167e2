"""What was made of a text, kept for the next time that the same text comes.

Rules: a cache changes how long something takes and nothing else. It is bounded by the size of the texts, since a few
large ones must not be able to cost what many small ones may.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# What an entry costs beside its text: so that a flood of tiny texts is bounded too.
_ENTRY_COST: Final = 256


class TextCache(Generic[T]):
    """Maps texts to what was made of them; the least recently used go first. Safe to share between threads."""

    __slots__ = ("_cost", "_found", "_lock", "_max_cost")

    def __init__(self, max_characters: int) -> None:
        self._max_cost = max_characters
        self._cost = 0
        self._found: OrderedDict[str, T] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._found)

    def get(self, text: str) -> T | None:
        """Return what was put in for `text`, or None."""
        with self._lock:
            found = self._found.get(text)
            if found is not None:
                self._found.move_to_end(text)
            return found

    def put(self, text: str, made: T) -> None:
        """Keep what was made of `text`. None can't be told from nothing, so it must not be put in."""
        cost = len(text) + _ENTRY_COST
        with self._lock:
            if text in self._found or cost > self._max_cost:
                return
            self._found[text] = made
            self._cost += cost
            while self._cost > self._max_cost:
                dropped, _ = self._found.popitem(last=False)
                self._cost -= len(dropped) + _ENTRY_COST
