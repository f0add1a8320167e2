"""How often a task is tried, and how long each part of its life may take, once all levels are put together.

Rules: a level is a message of the schema and says only what it changes; what is resolved here says everything, so the
walk never asks whether a field is absent. Nothing here knows tasks or the time: chance comes in as a number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import failure_pb2
from stepgraph_server.core.instants import MINUTE, SECOND, Span, from_duration

if TYPE_CHECKING:
    from stepgraph.v1 import policy_pb2

NO_LIMIT: Final = Span(0)
_TEN_SECONDS: Final = Span(10 * SECOND)
_HALF_A_MINUTE: Final = Span(30 * SECOND)
_TEN_MINUTES: Final = Span(10 * MINUTE)

_RETRYABLE_CATEGORIES: Final = frozenset(
    {
        failure_pb2.FAILURE_CATEGORY_UNSPECIFIED,  # read as TECHNICAL
        failure_pb2.FAILURE_CATEGORY_TECHNICAL,
        failure_pb2.FAILURE_CATEGORY_TIME_LIMIT,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a task is tried; the defaults are the server's.

    Attributes:
        max_tries: Tries in all, the first included.
        first_delay: The delay before the second try.
        factor: What each further delay is multiplied by.
        max_delay: The longest delay, jitter included.
        jitter: How much of a delay is random, 0 to 1.
        retryable_codes: Codes that are retried whatever the failure says of itself.
        non_retryable_codes: Codes that are never retried; they win.
    """

    max_tries: int = 3
    first_delay: Span = SECOND
    factor: float = 2.0
    max_delay: Span = _HALF_A_MINUTE
    jitter: float = 0.2
    retryable_codes: frozenset[str] = frozenset()
    non_retryable_codes: frozenset[str] = frozenset()

    def retries(self, failure: failure_pb2.Failure, tries: int) -> bool:
        """Whether a task is tried again that failed like this on its try number `tries`, counted from 1."""
        if tries >= self.max_tries or failure.code in self.non_retryable_codes:
            return False
        if failure.code in self.retryable_codes:
            return True
        if failure.HasField("retryable"):
            return failure.retryable
        # A category of a newer peer is not retried: doing nothing twice can be mended, doing harm twice can't.
        return failure.category in _RETRYABLE_CATEGORIES

    def next_delay(self, tries: int, jitter: float) -> Span:
        """Return how long to wait after `tries` tries, of which there is at least one.

        Args:
            tries: How often the task was tried so far.
            jitter: Chance, from -1 to 1; 0 gives the delay itself.
        """
        try:
            delay = min(self.first_delay * self.factor ** (tries - 1), float(self.max_delay))
        except OverflowError:
            # Only the power can be too large; what it multiplies may still be nothing.
            delay = float(self.max_delay if self.first_delay else 0)
        return Span(min(round(delay * (1 + self.jitter * jitter)), self.max_delay))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long each part of a task's life may take; 0 is no limit. The defaults are the server's.

    Attributes:
        queue: From when the task is ready until an executor has it.
        accept: From when an attempt is sent until it is accepted.
        run: One attempt.
        idle: Between two signs of progress of a streaming attempt.
        total: The whole task, tries and delays included, waiting for people excluded.
    """

    queue: Span = _TEN_MINUTES
    accept: Span = _TEN_SECONDS
    run: Span = _TEN_MINUTES
    idle: Span = MINUTE
    total: Span = NO_LIMIT


#: Of what no executor does.
NO_LIMITS: Final = Limits(
    queue=NO_LIMIT, accept=NO_LIMIT, run=NO_LIMIT, idle=NO_LIMIT, total=NO_LIMIT
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDefaults:
    """What the server gives a graph that says nothing.

    Attributes:
        retry: How tasks are tried.
        limits: How long tasks may take.
        max_iterations: The most supersteps of a run.
    """

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    limits: Limits = field(default_factory=Limits)
    max_iterations: int = 50


def resolve_retry(default: RetryPolicy, *levels: policy_pb2.RetryPolicy) -> RetryPolicy:
    """Put levels together, the nearest last: graph, node, effect. An empty message is an absent level.

    A list of codes that is not empty replaces the one of the level above, as any other field does.
    """
    policy = default
    for level in levels:
        if not level.ByteSize():
            continue
        policy = RetryPolicy(
            max_tries=level.max_tries if level.HasField("max_tries") else policy.max_tries,
            first_delay=from_duration(level.first_delay)
            if level.HasField("first_delay")
            else policy.first_delay,
            factor=level.factor if level.HasField("factor") else policy.factor,
            max_delay=from_duration(level.max_delay)
            if level.HasField("max_delay")
            else policy.max_delay,
            jitter=level.jitter if level.HasField("jitter") else policy.jitter,
            retryable_codes=frozenset(level.retryable_codes) or policy.retryable_codes,
            non_retryable_codes=frozenset(level.non_retryable_codes) or policy.non_retryable_codes,
        )
    return policy


def resolve_limits(default: Limits, *levels: policy_pb2.TaskLimits) -> Limits:
    """Put levels together, the nearest last: graph, node, effect. An empty message is an absent level.

    A duration that is present and 0 takes a limit of the level above away.
    """
    limits = default
    for level in levels:
        if not level.ByteSize():
            continue
        limits = Limits(
            queue=from_duration(level.queue) if level.HasField("queue") else limits.queue,
            accept=from_duration(level.accept) if level.HasField("accept") else limits.accept,
            run=from_duration(level.run) if level.HasField("run") else limits.run,
            idle=from_duration(level.idle) if level.HasField("idle") else limits.idle,
            total=from_duration(level.total) if level.HasField("total") else limits.total,
        )
    return limits
