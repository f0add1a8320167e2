"""Faults that are built into a server on purpose, to see that a simulation finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepgraph_server.core import outcomes
from stepgraph_server.engine.dispatcher import Dispatcher
from stepgraph_server.engine.holdings import Holdings
from stepgraph_server.engine.repeats import Repeats
from stepgraph_server.engine.runner import Runner
from stepgraph_server.engine.watch import WatchHub

if TYPE_CHECKING:
    from collections.abc import Callable


def acknowledge_early() -> None:
    """Tell an executor that its result is recorded when it is decided, and not when it is durable."""
    submit = Runner._submit

    def early(self: Any, run: Any, state: Any, delivery: Any, decision: Any) -> Any:
        due = submit(self, run, state, delivery, decision)
        if decision.acks:
            self._acts.acknowledge(delivery, decision.acks)
            self._acts.flush()
        return due

    Runner._submit = early  # type: ignore[method-assign]


def lose_attempts() -> None:
    """Tell no run that an executor is gone."""
    Dispatcher.lost = lambda self, lost: None  # type: ignore[method-assign]


def skip_events() -> None:
    """Show watchers nothing of every seventh append."""
    publish, count = WatchHub.publish, [0]

    def some(self: Any, *args: Any, **options: Any) -> None:
        count[0] += 1
        if count[0] % 7:
            publish(self, *args, **options)

    WatchHub.publish = some  # type: ignore[method-assign]


def keep_slots() -> None:
    """Forget that a slot was given back, now and then."""
    free, count = Holdings.free_all, [0]

    def some(self: Any, seat: Any, outcomes: Any) -> None:
        count[0] += 1
        free(self, seat, outcomes)
        if count[0] % 5 == 0:
            seat.in_flight += 1

    Holdings.free_all = some  # type: ignore[method-assign]


def forget_requests() -> None:
    """Take a request that is repeated for another one."""
    Repeats.recorder = lambda self, request, reply: None  # type: ignore[method-assign]


def believe_anybody() -> None:
    """Take a result from whoever sends it."""
    judge = outcomes._on_outcome

    def believing(turn: Any, report: Any, task_id: str, outcome: Any, index: int) -> Any:
        task = turn.state.tasks.get(task_id)
        if task is not None and task.instance:
            report.instance = task.instance
        return judge(turn, report, task_id, outcome, index)

    outcomes._on_outcome = believing


BY_NAME: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        acknowledge_early,
        believe_anybody,
        forget_requests,
        keep_slots,
        lose_attempts,
        skip_events,
    )
}

__all__ = ["BY_NAME"]
