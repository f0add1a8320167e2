"""Numbers and durations."""

from __future__ import annotations

import pytest

from tests.support.graphs import graph, problems, warnings


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"max_tries": 0}, "max_tries"),
        ({"max_tries": 1001}, "max_tries"),
        ({"factor": 0.5}, "factor"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": 1.1}, "jitter"),
    ],
)
def test_a_policy_is_in_range_at_every_level(policy: dict[str, object], field: str) -> None:
    assert problems(graph(retry=policy)) == {("OUT_OF_RANGE", f"retry.{field}")}
    assert problems(graph({"a": {"retry": policy}})) == {
        ("OUT_OF_RANGE", f"nodes[0].retry.{field}")
    }


def test_a_policy_at_the_edges_of_its_ranges_is_right() -> None:
    for policy in (
        {"max_tries": 1, "factor": 1, "jitter": 0},
        {"max_tries": 1000, "factor": 9.5, "jitter": 1, "retryable_codes": ["TOOL_ERROR"]},
    ):
        assert problems(graph(retry=policy)) == set()


def test_codes_of_a_policy_have_their_form() -> None:
    assert problems(graph(retry={"retryable_codes": ["a"], "non_retryable_codes": ["b"]})) == {
        ("NAME_INVALID", "retry.retryable_codes[0]"),
        ("NAME_INVALID", "retry.non_retryable_codes[0]"),
    }


def test_a_first_delay_beyond_the_longest_is_warned_of() -> None:
    assert warnings(graph(retry={"first_delay": "60s"})) == {
        ("RETRY_DELAY_CAPPED", "retry.first_delay")
    }
    both = graph({"a": {"retry": {"max_delay": "1s"}}}, retry={"first_delay": "5s"})
    assert warnings(both) == {("RETRY_DELAY_CAPPED", "nodes[0].retry.max_delay")}
    assert warnings(graph(retry={"first_delay": "60s", "max_delay": "60s"})) == set()


def test_a_limit_of_zero_is_no_limit_but_a_run_of_zero_is_none() -> None:
    assert problems(graph(limits={"run": "0s"})) == set()
    assert problems(graph(time_limit="1s")) == set()
    assert problems(graph(time_limit="0s")) == {("OUT_OF_RANGE", "time_limit")}
