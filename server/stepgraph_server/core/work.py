"""How much work one decision is, bounded before it is done.

Rules: all runs share one loop, so a decision must be short whatever its graph looks like. The core has no clock; it counts
units, from bounds that are known before something is evaluated. A unit is at most a nanosecond, and mostly less than half of
one, because a bound takes the worst for granted. A decision that has used up its work
yields between two nodes. What one node evaluates can't be interrupted, so that is capped.
"""

from __future__ import annotations

from typing import Final

MAX_NODE_WORK: Final = 64_000_000
"""What the expressions and conditions of one node may cost together: more than one may, since a node that takes twenty
fields out of one document is a fair thing to write."""

#: Beside expressions: what letting a node begin or end takes, looking at one of its edges, and finding a value by its name.
NODE_UNITS: Final = 150_000
EDGE_UNITS: Final = 6_000
LOOKUP_UNITS: Final = 2_000


class Work:
    """What one decision has done so far. The same input does the same work, whatever was cached."""

    __slots__ = ("_node_end", "done")

    def __init__(self) -> None:
        self.done: float = 0
        self._node_end: float = MAX_NODE_WORK

    def begin_node(self, edges: int) -> None:
        """Count a node that goes on, which may do its own share of work from here."""
        self.done += NODE_UNITS + EDGE_UNITS * edges
        self._node_end = self.done + MAX_NODE_WORK

    def spend(self, units: float) -> bool:
        """Count what an evaluation may cost, before it is evaluated; return whether the node may do that too."""
        self.done += units
        return self.done <= self._node_end

    def give_back(self, units: float) -> None:
        """Take back a part of what was counted, which turned out not to have been spent."""
        self.done -= units

    def look_up(self, characters: int = 0) -> None:
        """Count that a value of this length was found and put into a text."""
        self.done += LOOKUP_UNITS + characters
