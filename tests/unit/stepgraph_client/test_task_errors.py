"""How exceptions of functions are reported."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stepgraph.v1 import failure_pb2, llm_pb2
from stepgraph_client.task_errors import (
    MAX_MESSAGE_BYTES,
    BadArguments,
    Failed,
    ToolError,
    failure_outcome,
)


def test_what_a_function_says_of_its_failure_is_what_is_reported():
    error = Failed(
        "RATE_LIMITED",
        "come again",
        retryable=True,
        retry_after="2s",
        category="technical",
        details={"model": "m"},
        usage=llm_pb2.Usage(input_tokens=7),
    )
    outcome = failure_outcome(error, "worker-1")
    assert outcome.failure == failure_pb2.Failure(
        code="RATE_LIMITED",
        category=failure_pb2.FAILURE_CATEGORY_TECHNICAL,
        retryable=True,
        message="come again",
        source="worker-1",
        details={"model": "m"},
    )
    assert outcome.retry_after.seconds == 2
    assert outcome.usage.input_tokens == 7


def test_what_is_not_said_is_absent():
    outcome = failure_outcome(Failed("NOT_ALLOWED", "no"), "w")
    assert outcome.failure.category == failure_pb2.FAILURE_CATEGORY_BUSINESS
    assert not outcome.failure.HasField("retryable")
    assert not outcome.HasField("retry_after")
    assert not outcome.HasField("usage")


def test_a_time_may_be_a_timedelta():
    outcome = failure_outcome(Failed("X_Y", "", retry_after=timedelta(milliseconds=1500)), "w")
    assert (outcome.retry_after.seconds, outcome.retry_after.nanos) == (1, 500_000_000)


@pytest.mark.parametrize("code", ["", "lower", "A", "NO SPACE", "X" * 64])
def test_a_code_that_can_not_be_named_is_refused(code):
    with pytest.raises(ValueError, match="a code is a name such as RATE_LIMITED"):
        Failed(code, "")


def test_any_other_exception_is_a_technical_failure_without_its_traceback():
    try:
        int("no number")
    except ValueError as error:
        outcome = failure_outcome(error, "w")
    assert outcome.failure.code == "EXECUTOR_ERROR"
    assert outcome.failure.category == failure_pb2.FAILURE_CATEGORY_TECHNICAL
    assert outcome.failure.message.startswith("ValueError: invalid literal")
    assert "Traceback" not in outcome.failure.message
    assert __file__ not in outcome.failure.message
    assert failure_outcome(KeyError(), "w").failure.message == "KeyError"


def test_long_messages_are_cut_with_a_mark_and_broken_text_is_mended():
    message = failure_outcome(Failed("TOO_LONG", "é" * 5_000), "w").failure.message
    assert len(message.encode()) <= MAX_MESSAGE_BYTES
    assert message.endswith("é…")
    assert failure_outcome(ValueError("half \ud800"), "w").failure.message == "ValueError: half ?"


def test_bad_arguments_are_trouble_that_the_model_is_told():
    assert issubclass(BadArguments, ToolError)
