"""What must hold of the server as a whole: after every commit, and when nothing is under way any more.

The invariants of a run are those of `core/invariants.py`, and are asked of every run in memory that has changed. Here are those of the
server: every slot of an executor is accounted for, and at rest nothing is left behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepgraph.v1 import run_pb2
from stepgraph_server.core import invariants
from stepgraph_server.core.run import fold
from tests.simulation.answers import NOBODY, SCRIPTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepgraph.v1 import event_pb2
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.engine.live import LiveRun
    from stepgraph_server.storage.records import RunKey
    from tests.simulation.ledger import Book
    from tests.simulation.server import Server
    from tests.simulation.world import World

#: Longer journals are folded again at every so many-th look only: that takes time that grows with them.
FOLDED_EVENTS = 60
FOLDED_EVERY = 8

#: Failures that belong to a graph's course, whoever plays it and however often something goes wrong.
_OF_THE_GRAPH = frozenset(
    {
        *(
            SCRIPTED,
            NOBODY,
            "TOOL_ERROR",
            "DEAD_END",
            "MAX_ITERATIONS",
            "MAX_TURNS",
            "EXPRESSION_FAILED",
        ),
        *("TEMPLATE_FAILED", "GOTO_CONFLICT", "HANDOFF_SPENT", "SPAWN_FAILED", "STATE_CONFLICT"),
        *(
            "CONDITION_FAILED",
            "NO_DECISION",
            "REDUCER_TYPE",
            "STEP_REPLY_INVALID",
            "ABORTED_BY_PERSON",
        ),
        *("CANCELLED", "HANDOFF_MISSING", "TOOL_CALL_AMBIGUOUS", "PARADIGM_UNKNOWN"),
    }
)


class Checker:
    """Looks at the server that lives now."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_planned = False
        #: How far each run was when it was looked at.
        self._seen: dict[RunKey, int] = {}
        self._looks = 0

    def check_soon(self) -> None:
        """Look once what follows from a commit was done."""
        if not self._is_planned:
            self._is_planned = True
            self._world.loop.soon(self._check)

    def _check(self) -> None:
        self._is_planned = False
        server = self._world.server
        if server is None or not server.process.alive:
            return
        self._check_slots(server)
        for key, run in server.parts.runner._live.items():
            if run.state is None or run.failure is not None:
                continue
            if self._seen.get(key) != run.state.sequence:
                self._seen[key] = run.state.sequence
                self._check_run(run)

    def _check_run(self, run: LiveRun) -> None:
        state = run.state
        assert state is not None
        events = list(self._world.ledger.book(run.key.run_id).events)
        for pending in run.pending:
            prefix = pending.delivery.prefix
            if prefix is not None and not events:
                source = self._world.ledger.book(prefix.source.run_id)
                events = source.events[: prefix.last_sequence]
            events += [each for each in pending.decision.events if each.sequence > len(events)]
        self._looks += 1
        self._world.count("runs checked")
        troubles: Iterable[str]
        if len(events) <= FOLDED_EVENTS or self._looks % FOLDED_EVERY == 0:
            troubles = invariants.check(state, events)
        else:
            troubles = [
                f"{name}: {trouble}"
                for name, holds in invariants.INVARIANTS.items()
                if name != "I2"
                for trouble in holds(state, events)
            ]
        for trouble in troubles:
            if (
                trouble.startswith("I2: started_at")
                and not self._world.ledger.book(run.key.run_id).is_fork
            ):
                # A run began when it was asked for, which its row says; its first event may be later.
                continue
            self._world.trouble(f"{run.key.run_id} at {state.sequence}: {trouble}")

    def _check_slots(self, server: Server) -> None:
        holdings = server.parts.dispatcher.holdings
        for seat in server.parts.registry.seats():
            slots = len(holdings._slots.get(seat, ()))
            if seat.is_open and seat.in_flight != slots:
                self._world.trouble(
                    f"{seat.executor_id} has {seat.in_flight} attempts, and {slots} slots are taken"
                )

    def check_rest(self, server: Server) -> None:
        """Check that nothing is left of what is over."""
        parts = server.parts
        held = {key: each for key, each in parts.dispatcher.holdings._attempts.items() if each}
        for what, left in (
            (
                "slots",
                {seat.executor_id: s for seat, s in parts.dispatcher.holdings._slots.items() if s},
            ),
            ("attempts", held),
            ("queues", len(parts.dispatcher.waiting)),
            ("runs", [str(key) for key in parts.runner._live]),
            ("timers", len(parts.runner.timers)),
            ("appends", parts.store.journal.backlog().appends),
            ("watchers", len(parts.watcher._hub._by_run)),
        ):
            if left:
                self._world.trouble(f"all is over, and there are still {what}: {left}")
        for seat in parts.registry.seats():
            if seat.in_flight:
                self._world.trouble(f"all is over, and {seat.executor_id} has {seat.in_flight}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a run left, without what only says when."""

    #: False: it did not complete. The first cause decides, and which is first is a matter of time.
    result: object
    #: Why it may be another than without faults; "" if it may not.
    excuse: str
    #: The sets of tools that its models were offered: those of the executors that were there.
    tools: frozenset[str]
    #: The topmost run above it.
    root: str

    def difference(self, undisturbed: Left) -> str:
        """Say how it differs from the same run without faults; "" if it does not."""
        if self.result == undisturbed.result:
            return ""
        return f"it left {self.result}, and without faults {undisturbed.result}"


def comparable(left: Mapping[str, Left], undisturbed: Mapping[str, Left]) -> list[str]:
    """Return the runs that must be the same as without faults: all of a tree, or none, since each depends on the others."""
    excused = {
        each.root
        for run_id, each in left.items()
        if each.excuse or run_id not in undisturbed or each.tools != undisturbed[run_id].tools
    }
    # Of a tree that does not complete, which of its runs were stopped in the middle is a matter of time, too.
    excused_below = {run_id for run_id, each in undisturbed.items() if each.result is False}
    return [
        run_id
        for run_id, each in left.items()
        if each.root not in excused and (each.root == run_id or each.root not in excused_below)
    ]


def result_of(run_id: str, book: Book, graph: CompiledGraph, excuse: str) -> Left:
    """Return what a run left."""
    state = fold(run_id, graph, book.events)
    left: object = False
    if state.status == run_pb2.RUN_STATUS_COMPLETED:
        variables = state.variables.items()
        left = (
            {name: value.SerializeToString(deterministic=True) for name, value in variables},
            [entry.data for entry in state.conversation.entries],
            state.carried.last_result,
            state.carried.decision,
            state.carried.paradigm,
            state.iterations,
            dict(sorted(state.traversals.items())),
        )
    return Left(
        result=left,
        excuse=excuse or _difference_by_faults(book.events),
        tools=frozenset(event.task_scheduled.tools_digest for event in book.events),
        root=book.root,
    )


def _difference_by_faults(events: Iterable[event_pb2.RunEvent]) -> str:
    for event in events:
        failed = event.task_failed
        if failed.failure.code and not failed.HasField("retry_time"):
            code = failed.failure.code
            if code not in _OF_THE_GRAPH:
                return f"{failed.task_id} failed with {code}"
    return ""


__all__ = ["Checker", "Left", "comparable", "result_of"]
