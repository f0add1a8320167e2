"""Courses, each in a process of its own: with faults and without, and what is different.

Rules: a process is forked for each seed, so nothing of one course reaches another, and a fault that takes the interpreter with it is
told like any other. The caller has no threads.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulation.checks import comparable
from tests.simulation.world import play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: A course takes a second; one that takes so long, in seconds, will not end.
MOST_S = 40.0
#: Lines of a trace that are kept: those before what went wrong.
TRACE_LINES = 400


@dataclass(slots=True)
class Verdict:
    """What one seed came to."""

    seed: int
    troubles: list[str] = field(default_factory=list)
    #: The names of the faults that happened.
    happened: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def steps(self) -> int:
        """How much happened: commits, frames, calls and events that were watched."""
        counts = self.counts
        return counts["commits"] + counts["frames"] + counts["calls"] + counts["watched events"]


def judge(
    seed: int, only: frozenset[str] | None = None, sabotage: Callable[[], None] | None = None
) -> Verdict:
    """Play a seed with its faults and without any, and compare. Call it in a process of its own."""
    gc.disable()
    undisturbed = play(seed, frozenset())
    if sabotage is not None:
        sabotage()
    course = play(seed, only)
    troubles = [f"without faults: {each}" for each in undisturbed.troubles] + course.troubles
    verdict = Verdict(seed, troubles, course.happened, course.trace[-TRACE_LINES:], course.counts)
    verdict.counts["faults"] = len(course.happened)
    verdict.counts.update(f"fault {name.partition(':')[0]}" for name in course.happened)
    verdict.counts["runs"] = len(course.left)
    for run_id in comparable(course.left, undisturbed.left):
        left, original = course.left[run_id], undisturbed.left[run_id]
        verdict.counts["runs compared"] += 1
        verdict.counts["runs compared completed"] += original.result is not False
        if difference := left.difference(original):
            verdict.troubles.append(f"{run_id}: {difference}")
    return verdict


@dataclass(slots=True)
class _Child:
    process_id: int
    seed: int
    pipe: int
    deadline: float
    data: bytearray = field(default_factory=bytearray)


def judge_all(
    seeds: Iterable[int],
    jobs: int,
    only: frozenset[str] | None = None,
    sabotage: Callable[[], None] | None = None,
) -> Iterator[Verdict]:
    """Judge seeds, so many at a time, and yield each verdict as it comes."""
    waiting = iter(seeds)
    selector = selectors.DefaultSelector()
    children: dict[int, _Child] = {}

    def begin() -> None:
        seed = next(waiting, None)
        if seed is not None:
            child = _fork(seed, only, sabotage)
            children[child.pipe] = child
            selector.register(child.pipe, selectors.EVENT_READ)

    try:
        for _ in range(jobs):
            begin()
        while children:
            for key, _ in selector.select(1.0):
                child = children[key.fd]
                chunk = os.read(child.pipe, 1 << 16)
                child.data += chunk
                if not chunk:
                    selector.unregister(child.pipe)
                    del children[child.pipe]
                    yield _verdict_of(child)
                    begin()
            for child in children.values():
                if time.monotonic() > child.deadline:
                    os.kill(child.process_id, signal.SIGKILL)
    finally:
        for child in children.values():
            os.kill(child.process_id, signal.SIGKILL)
            os.waitpid(child.process_id, 0)
            os.close(child.pipe)
        selector.close()


def _fork(seed: int, only: frozenset[str] | None, sabotage: Callable[[], None] | None) -> _Child:
    reading, writing = os.pipe()
    process_id = os.fork()
    if process_id == 0:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(judge(seed, only, sabotage), pipe)
            status = 0
        finally:
            # Nothing is closed and nothing collected: what was killed in a course must not run again.
            os._exit(status)
    os.close(writing)
    return _Child(process_id, seed, reading, time.monotonic() + MOST_S)


def _verdict_of(child: _Child) -> Verdict:
    os.close(child.pipe)
    _, status = os.waitpid(child.process_id, 0)
    if status == 0:
        verdict = pickle.loads(bytes(child.data))
        assert isinstance(verdict, Verdict)
        return verdict
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an exception"
    return Verdict(
        child.seed, [f"its process ended with {how}; did it take more than {MOST_S:.0f} s?"]
    )


__all__ = ["Verdict", "judge_all"]
