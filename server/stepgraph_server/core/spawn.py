"""Work that an activation has spawned, as it is folded: what runs, what came of it, and how that comes together.

Rules: results stand in the order of the specs, whoever ended first. Once a join is decided nothing changes it: what is left is
CANCELLED.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph.v1 import failure_pb2, policy_pb2, value_pb2
from stepgraph_server.core.failures import MAX_CAUSES, cut, failure

if TYPE_CHECKING:
    from stepgraph.v1 import transition_pb2

Outcome: TypeAlias = value_pb2.Value | failure_pb2.Failure

ALL: Final = policy_pb2.JOIN_POLICY_ALL
ALL_SETTLED: Final = policy_pb2.JOIN_POLICY_ALL_SETTLED
FIRST: Final = policy_pb2.JOIN_POLICY_FIRST


@dataclass(slots=True)
class Spawn:
    """One Spawn, from when it was asked for until its node goes on."""

    #: The turn that asked for it.
    turn: int
    wanted: transition_pb2.Transition.Spawn
    #: How many were started; they are started in order.
    started: int = 0
    #: How many of these have not ended.
    live: int = 0
    #: What came of each, by position; None before.
    outcomes: list[Outcome | None] = field(default_factory=list)
    #: How many have no outcome.
    left: int = 0
    #: How its results come together is known: nothing more is started.
    decided: bool = False
    #: Why the node that spawned it fails.
    failure: failure_pb2.Failure | None = None

    @classmethod
    def of(cls, turn: int, wanted: transition_pb2.Transition.Spawn) -> Spawn:
        """Return a Spawn of which nothing has started. One without specs has ended."""
        count = len(wanted.specs)
        return cls(turn, wanted, 0, 0, [None] * count, count, decided=count == 0)

    @property
    def can_start(self) -> bool:
        """Whether one more may be started."""
        cap = self.wanted.max_concurrency
        return (
            not self.decided and self.started < len(self.outcomes) and (cap == 0 or self.live < cap)
        )

    def label(self, index: int) -> str:
        """Return what a spec is called; without a name of its own, by its position."""
        spec = self.wanted.specs[index]
        return spec.label if spec.HasField("label") else str(index)

    def end(self, index: int, outcome: Outcome, node_id: str) -> None:
        """One has ended. `node_id` is the node that spawned it."""
        self.outcomes[index] = outcome
        self.live -= 1
        self.left -= 1
        failed = isinstance(outcome, failure_pb2.Failure)
        match self.wanted.join:
            case policy_pb2.JOIN_POLICY_FIRST:
                self.decided = not failed or self.left == 0
                if failed and self.decided:
                    self.failure = self._all_failed(node_id)
            case policy_pb2.JOIN_POLICY_ALL_SETTLED:
                self.decided = self.left == 0
            case _:
                # Not given is read as ALL.
                self.decided = failed or self.left == 0
                if isinstance(outcome, failure_pb2.Failure):
                    self.failure = self._one_failed(index, outcome, node_id)

    def cancelled(self) -> list[int]:
        """Give what is left its outcome, CANCELLED, and return which these are."""
        positions = [index for index, each in enumerate(self.outcomes) if each is None]
        for index in positions:
            self.outcomes[index] = failure("CANCELLED", self.reason)
        self.left = self.live = 0
        return positions

    @property
    def reason(self) -> str:
        """Why what is left is not waited for."""
        first = self.wanted.join == FIRST
        return "another of its Spawn was first" if first else "another of its Spawn has failed"

    def _one_failed(
        self, index: int, why: failure_pb2.Failure, node_id: str
    ) -> failure_pb2.Failure:
        """Return the failure of the node: with the code of what failed, so that edges can tell."""
        made = failure_pb2.Failure(
            code=why.code,
            category=why.category,
            retryable=False,
            message=cut(
                f"{self.label(index)!r}, spawned by {node_id!r}, has failed: {why.message}"
            ),
            source=node_id,
            causes=[why],
        )
        made.details["index"] = str(index)
        made.details["label"] = self.label(index)
        return made

    def _all_failed(self, node_id: str) -> failure_pb2.Failure:
        causes = [each for each in self.outcomes if isinstance(each, failure_pb2.Failure)]
        return failure(
            "SPAWN_FAILED",
            f"none of the {len(causes)} that {node_id!r} has spawned has succeeded; the first: {causes[0].message}",
            source=node_id,
            details={"count": str(len(causes))},
            causes=causes[:MAX_CAUSES],
        )


__all__ = ["ALL", "ALL_SETTLED", "FIRST", "Outcome", "Spawn"]
