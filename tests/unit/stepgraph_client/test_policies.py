from __future__ import annotations

from datetime import timedelta

from stepgraph.v1.interrupt_pb2 import InterruptOptions
from stepgraph.v1.policy_pb2 import RetryPolicy, TaskLimits
from stepgraph_client.answers import proceed
from stepgraph_client.policies import (
    choices,
    everything_but,
    limits,
    must_call,
    must_not_call,
    only,
    question,
    retry,
)


def test_what_is_not_given_stays_absent() -> None:
    assert retry() == RetryPolicy()
    assert limits() == TaskLimits()
    assert question() == InterruptOptions()


def test_a_policy_of_tries_has_all_that_was_given() -> None:
    policy = retry(
        max_tries=5,
        first_delay="2s",
        factor=1.5,
        max_delay=timedelta(minutes=1),
        jitter=0.0,
        retryable_codes=["A"],
        non_retryable_codes=["B"],
    )
    assert (policy.max_tries, policy.first_delay.seconds, policy.factor) == (5, 2, 1.5)
    assert policy.max_delay.seconds == 60
    assert policy.HasField("jitter")
    assert (list(policy.retryable_codes), list(policy.non_retryable_codes)) == (["A"], ["B"])


def test_each_limit_goes_to_its_field() -> None:
    built = limits(queue="1s", accept="2s", run="3s", idle="4s", total="0s")
    assert [getattr(built, name).seconds for name in ("queue", "accept", "run", "idle")] == [
        1,
        2,
        3,
        4,
    ]
    assert built.HasField("total")


def test_a_question_has_choices_a_schema_a_deadline_and_a_default() -> None:
    asked = question(
        "Deploy?",
        options={"yes": "Do it", "no": "Leave it"},
        answer_schema={"type": "object"},
        deadline="1h",
        default_answer=proceed(),
    )
    assert [(each.id, each.label) for each in asked.options] == [
        ("yes", "Do it"),
        ("no", "Leave it"),
    ]
    assert asked.answer_schema == '{"type": "object"}'
    assert asked.deadline.seconds == 3600
    assert asked.default_answer == proceed()


def test_choices_may_be_ids_alone() -> None:
    assert [(each.id, each.label) for each in choices(["a", "b"])] == [("a", ""), ("b", "")]


def test_filters_say_what_passes() -> None:
    assert list(only().allow) == []
    assert list(only("a", "b*", deny=["bad"]).deny) == ["bad"]
    assert (list(everything_but("x").allow), list(everything_but("x").deny)) == (["*"], ["x"])


def test_a_model_may_have_to_call_a_tool_or_none() -> None:
    assert must_call().WhichOneof("kind") == "required"
    assert must_call("search").named.name == "search"
    assert must_not_call().WhichOneof("kind") == "forbidden"
