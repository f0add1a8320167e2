"""What the package `openai` raises, as failures of the task."""

from __future__ import annotations

import re

import httpx2
import openai
import pytest

from stepgraph.v1.llm_pb2 import Usage
from stepgraph_client.providers.failures import Failures
from stepgraph_client.providers.openai_failures import OpenAIFailures, refusal_in

KEY = "sk-canary-0123456789"
REQUEST = httpx2.Request("POST", "http://h/v1/chat/completions")
COST = Usage(input_tokens=3)


@pytest.fixture
def raised():
    return OpenAIFailures(Failures(address="http://h/v1", key_name="K", secrets=[KEY]), 60.0)


def status_error(status, body, **headers):
    response = httpx2.Response(status, request=REQUEST, headers=headers)
    return openai.APIStatusError("whole body", response=response, body=body)


def connection_error(cause, error=None):
    made = error or openai.APIConnectionError(request=REQUEST)
    made.__cause__ = cause
    return made


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (429, {"message": "slow down", "type": "requests", "code": "rate_limit"}, "RATE_LIMITED"),
        (429, {"message": "no credit", "code": "insufficient_quota"}, "QUOTA_SPENT"),
        (429, {"message": "no credit", "type": "insufficient_quota"}, "QUOTA_SPENT"),
        (400, {"message": "long", "code": "context_length_exceeded"}, "REQUEST_TOO_LARGE"),
        (400, {"message": "long", "type": "exceed_context_size_error"}, "REQUEST_TOO_LARGE"),
        (400, {"message": "This model's maximum context length is 8"}, "REQUEST_TOO_LARGE"),
        (400, {"message": "bad", "param": "x"}, "REQUEST_REJECTED"),
        (503, {"message": "Loading model", "code": 503}, "PROVIDER_UNAVAILABLE"),
    ],
    ids=range(8),
)
def test_an_answer_is_told_by_its_status_and_its_codes(raised, status, body, code):
    """The status says what an error means, unless a code of the server's says more."""
    failed = raised.of(status_error(status, body), "m")
    assert failed.code == code
    assert body["message"] in failed.message
    assert failed.details["model"] == "m"


@pytest.mark.parametrize(
    ("body", "said"),
    [({"detail": "Not Found"}, "Not Found"), ("<html>", "<html>"), ({"detail": [1]}, "whole body")],
    ids=range(3),
)
def test_servers_say_what_is_wrong_in_their_own_way(raised, body, said):
    """The message is found wherever the server wrote it."""
    assert said in raised.of(status_error(404, body), "").message


def test_headers_are_read_in_any_case(raised):
    """The wait that is asked for is found, however its header is written."""
    failed = raised.of(
        status_error(429, None, **{"Retry-After-Ms": "1500", "X-Request-Id": "r"}), ""
    )
    assert failed.retry_after.nanos == 500_000_000
    assert failed.details["request_id"] == "r"


@pytest.mark.parametrize(
    ("cause", "why"),
    [
        (httpx2.ConnectError("[Errno 111] refused"), r"can't reach .*refused"),
        (httpx2.ConnectTimeout(""), "did not accept the connection in time"),
        (httpx2.PoolTimeout(""), "all connections are in use"),
        (httpx2.LocalProtocolError(f"Illegal header value b'Bearer {KEY}'"), r"Bearer \[key\]"),
        (httpx2.RemoteProtocolError(""), "RemoteProtocolError"),
        (None, "Connection error"),
    ],
    ids=range(6),
)
def test_no_connection_says_why(raised, cause, why):
    """The failure says why there is no connection, without the key."""
    timeout = isinstance(cause, httpx2.TimeoutException)
    error = openai.APITimeoutError(request=REQUEST) if timeout else None
    failed = raised.of(connection_error(cause, error), "m")
    assert failed.code == "PROVIDER_UNREACHABLE"
    assert re.search(why, failed.message)
    assert "canary" not in failed.message


def test_silence_is_told_from_no_connection(raised):
    """A server that took the request and says nothing is silent, before the reply and in it."""
    error = connection_error(httpx2.ReadTimeout(""), openai.APITimeoutError(request=REQUEST))
    before, within = raised.of(error, "m"), raised.in_stream(error, "m", COST)
    assert before.code == within.code == "PROVIDER_TIMEOUT"
    assert (before.usage, within.usage) == (None, COST)
    assert "nothing for 60 s" in before.message


def test_a_stream_that_loses_its_connection_has_broken_off(raised):
    """What breaks within a reply is a broken stream, and what is known of its cost is told."""
    failed = raised.in_stream(connection_error(httpx2.ReadError("reset")), "m", COST)
    assert (failed.code, failed.usage) == ("STREAM_BROKEN", COST)
    assert "reset" in failed.message


@pytest.mark.parametrize(
    ("body", "code", "retryable"),
    [
        ({"message": "x", "code": 429}, "RATE_LIMITED", True),
        ({"message": "x", "code": "401"}, "PROVIDER_UNAUTHENTICATED", False),
        ({"message": "x", "code": "server_error"}, "STREAM_BROKEN", None),
        ({"message": "x", "code": "4290"}, "STREAM_BROKEN", None),
        ({"message": "x", "type": "overloaded"}, "STREAM_BROKEN", None),
        ({}, "STREAM_BROKEN", None),
    ],
    ids=range(6),
)
def test_an_error_within_a_stream_may_have_a_status(raised, body, code, retryable):
    """An error that is an event of the stream has broken it, unless its code is a status that says more."""
    error = openai.APIError(f"it says {KEY}", REQUEST, body=body)
    failed = raised.in_stream(error, "m", COST)
    assert (failed.code, failed.retryable, failed.usage) == (code, retryable, COST)
    assert "it says [key]" in failed.message


def test_whatever_else_is_raised_is_a_failure_too(raised):
    """Nothing that the package raises gets out as it is."""
    response = httpx2.Response(200, request=REQUEST)
    invalid = openai.APIResponseValidationError(response, None)
    assert raised.of(invalid, "m").code == "REPLY_MALFORMED"
    assert raised.of(openai.OpenAIError(f"no {KEY}"), "m").code == "PROVIDER_UNREACHABLE"
    assert raised.in_stream(openai.OpenAIError(f"no {KEY}"), "m", None).code == "STREAM_BROKEN"
    assert "canary" not in raised.of(openai.OpenAIError(f"no {KEY}"), "m").message


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"code": "content_filter"}, True),
        ({"code": "content_policy_violation"}, True),
        ({"code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}, True),
        ({"code": "x", "innererror": "y"}, False),
        ({"code": "invalid"}, False),
        (None, False),
    ],
    ids=range(6),
)
def test_a_content_filter_refuses_by_an_error(body, refused):
    """Where a filter refuses the request itself, the error is a refusal."""
    assert refusal_in(status_error(400, body)) == ("whole body" if refused else None)
