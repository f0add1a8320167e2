"""Retries and limits once all levels are put together."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import failure_pb2 as failures
from stepgraph.v1 import policy_pb2
from stepgraph_server.core.instants import MINUTE, SECOND, Span
from stepgraph_server.core.policies import (
    NO_LIMIT,
    Limits,
    RetryPolicy,
    resolve_limits,
    resolve_retry,
)


def test_the_defaults_are_the_documented_ones() -> None:
    policy, limits = RetryPolicy(), Limits()
    assert (policy.max_tries, policy.first_delay, policy.factor) == (3, SECOND, 2.0)
    assert (policy.max_delay, policy.jitter) == (30 * SECOND, 0.2)
    assert (limits.queue, limits.accept, limits.run) == (10 * MINUTE, 10 * SECOND, 10 * MINUTE)
    assert (limits.idle, limits.total) == (60 * SECOND, NO_LIMIT)


def test_delays_grow_by_the_factor_up_to_the_longest() -> None:
    policy = RetryPolicy()
    delays = [policy.next_delay(tries, 0.0) / SECOND for tries in range(1, 8)]
    assert delays == [1, 2, 4, 8, 16, 30, 30]


def test_jitter_moves_a_delay_both_ways() -> None:
    policy = RetryPolicy()
    assert policy.next_delay(1, 1.0) == 1_200_000
    assert policy.next_delay(1, -1.0) == 800_000


def test_the_longest_delay_holds_with_jitter_too() -> None:
    policy = RetryPolicy()
    assert policy.next_delay(100, 1.0) == 30 * SECOND
    assert policy.next_delay(100, -1.0) == 24 * SECOND


def test_a_power_beyond_all_numbers_is_cut_as_any_other() -> None:
    assert RetryPolicy(factor=1e300).next_delay(900, 0.0) == 30 * SECOND
    assert RetryPolicy(factor=1e300, first_delay=Span(0)).next_delay(900, 0.0) == 0


@given(
    tries=st.integers(1, 1_000),
    jitter=st.floats(-1, 1),
    first=st.integers(0, 10**12),
    longest=st.integers(0, 10**12),
    factor=st.floats(1, 1e308),
    share=st.floats(0, 1),
)
def test_a_delay_is_never_negative_nor_beyond_the_longest(
    tries: int, jitter: float, first: int, longest: int, factor: float, share: float
) -> None:
    policy = RetryPolicy(
        first_delay=Span(first), max_delay=Span(longest), factor=factor, jitter=share
    )
    assert 0 <= policy.next_delay(tries, jitter) <= longest


@pytest.mark.parametrize(
    ("category", "again"),
    [
        (failures.FAILURE_CATEGORY_UNSPECIFIED, True),
        (failures.FAILURE_CATEGORY_TECHNICAL, True),
        (failures.FAILURE_CATEGORY_TIME_LIMIT, True),
        (failures.FAILURE_CATEGORY_BUSINESS, False),
        (failures.FAILURE_CATEGORY_CANCELLED, False),
        (failures.FAILURE_CATEGORY_LIMIT, False),
        (99, False),
    ],
)
def test_the_category_decides_where_nothing_else_does(
    category: failures.FailureCategory.ValueType, again: bool
) -> None:
    failure = failures.Failure(code="X", category=category)
    assert RetryPolicy().retries(failure, 1) is again


def test_a_failure_may_say_itself_whether_it_is_retried() -> None:
    technical = failures.Failure(category=failures.FAILURE_CATEGORY_TECHNICAL, retryable=False)
    business = failures.Failure(category=failures.FAILURE_CATEGORY_BUSINESS, retryable=True)
    assert not RetryPolicy().retries(technical, 1)
    assert RetryPolicy().retries(business, 1)


def test_codes_of_the_policy_win_over_the_failure() -> None:
    policy = RetryPolicy(
        retryable_codes=frozenset({"A", "B"}), non_retryable_codes=frozenset({"B", "C"})
    )
    assert policy.retries(failures.Failure(code="A", retryable=False), 1)
    assert not policy.retries(failures.Failure(code="B", retryable=True), 1)
    assert not policy.retries(failures.Failure(code="C", retryable=True), 1)


def test_the_number_of_tries_wins_over_everything() -> None:
    policy = RetryPolicy(max_tries=2, retryable_codes=frozenset({"A"}))
    failure = failures.Failure(code="A", retryable=True)
    assert policy.retries(failure, 1)
    assert not policy.retries(failure, 2)


def test_the_nearest_level_that_says_something_decides_each_field() -> None:
    graph = policy_pb2.RetryPolicy(max_tries=5, jitter=0.0, retryable_codes=["A"])
    node = policy_pb2.RetryPolicy(
        first_delay=Duration(seconds=2), factor=3.0, max_delay=Duration(seconds=9)
    )
    effect = policy_pb2.RetryPolicy(max_tries=1, non_retryable_codes=["B"], retryable_codes=["C"])
    assert resolve_retry(
        RetryPolicy(), graph, node, policy_pb2.RetryPolicy(), effect
    ) == RetryPolicy(
        max_tries=1,
        first_delay=Span(2 * SECOND),
        factor=3.0,
        max_delay=Span(9 * SECOND),
        jitter=0.0,
        retryable_codes=frozenset({"C"}),
        non_retryable_codes=frozenset({"B"}),
    )


def test_no_level_leaves_the_defaults() -> None:
    assert resolve_retry(RetryPolicy()) == RetryPolicy()
    assert resolve_limits(Limits()) == Limits()


def test_a_limit_of_zero_takes_the_limit_of_the_level_above_away() -> None:
    graph = policy_pb2.TaskLimits(queue=Duration(seconds=1), total=Duration(seconds=5))
    node = policy_pb2.TaskLimits(
        queue=Duration(),
        accept=Duration(seconds=2),
        run=Duration(seconds=3),
        idle=Duration(nanos=4_000),
    )
    assert resolve_limits(Limits(), graph, policy_pb2.TaskLimits(), node) == Limits(
        queue=NO_LIMIT,
        accept=Span(2 * SECOND),
        run=Span(3 * SECOND),
        idle=Span(4),
        total=Span(5 * SECOND),
    )
