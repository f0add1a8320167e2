"""What goes wrong at a provider, as failures of the task."""

from __future__ import annotations

from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration

from stepgraph.v1.llm_pb2 import Usage
from stepgraph_client.providers.failures import (
    MAX_QUOTED_CHARACTERS,
    Answer,
    Failures,
    retry_after,
)

KEY = "sk-canary-0123456789"


@pytest.fixture
def failures():
    return Failures(address="https://api.example.com/v1", key_name="MY_KEY", secrets=[KEY, ""])


@pytest.mark.parametrize(
    ("status", "code", "retryable"),
    [
        (400, "REQUEST_REJECTED", False),
        (401, "PROVIDER_UNAUTHENTICATED", False),
        (402, "QUOTA_SPENT", False),
        (403, "PROVIDER_FORBIDDEN", False),
        (404, "MODEL_NOT_FOUND", False),
        (408, "PROVIDER_TIMEOUT", True),
        (409, "PROVIDER_UNAVAILABLE", True),
        (413, "REQUEST_TOO_LARGE", False),
        (418, "REQUEST_REJECTED", False),
        (422, "REQUEST_REJECTED", False),
        (425, "PROVIDER_UNAVAILABLE", True),
        (429, "RATE_LIMITED", True),
        (500, "PROVIDER_UNAVAILABLE", True),
        (501, "REQUEST_REJECTED", False),
        (503, "PROVIDER_UNAVAILABLE", True),
        (504, "PROVIDER_TIMEOUT", True),
        (524, "PROVIDER_TIMEOUT", True),
        (529, "PROVIDER_UNAVAILABLE", True),
    ],
)
def test_a_status_has_one_meaning(failures, status, code, retryable):
    """A status has one code, and says whether another try may help."""
    failed = failures.answered(Answer(status=status, message="no"))
    assert (failed.code, failed.retryable) == (code, retryable)
    assert f"https://api.example.com/v1 answered {status}: no. " in failed.message
    assert failed.details == {"status": str(status)}


def test_what_waiting_does_not_mend_is_told_from_a_rate(failures):
    """A 429 for an account that has nothing left is not tried again, and says what to do."""
    failed = failures.answered(Answer(status=429, is_quota=True))
    assert (failed.code, failed.retryable, failed.category) == ("QUOTA_SPENT", False, "limit")
    assert "Add credit" in failed.message


def test_a_context_that_is_too_long_is_a_limit(failures):
    """A context that is too long for the model is a limit, whatever its status."""
    failed = failures.answered(Answer(status=400, is_too_long=True))
    assert (failed.code, failed.category) == ("REQUEST_TOO_LARGE", "limit")


def test_a_provider_that_knows_better_is_followed(failures):
    """`x-should-retry` wins over what the status means."""
    no = failures.answered(Answer(status=503, headers={"x-should-retry": "false"}))
    yes = failures.answered(Answer(status=400, headers={"x-should-retry": "true"}))
    assert (no.retryable, yes.retryable) == (False, True)


def test_the_message_names_where_the_key_is_and_never_the_key(failures):
    """A refused key is told by the name of its variable; a provider that echoes it is not quoted."""
    said = f"bad key {KEY}, {KEY}\nsent"
    failed = failures.answered(Answer(status=401, message=said, code=KEY, model=KEY))
    assert "Check the key in MY_KEY." in failed.message
    assert "bad key [key], [key] sent" in failed.message
    assert "canary" not in failed.message + str(failed.details)
    assert failed.details["provider_code"] == "[key]"


def test_the_longest_secret_is_taken_out_first():
    """Of two secrets of which one begins with the other, no rest stays."""
    failures = Failures(address="a", key_name="k", secrets=["secret", "secret-and-more"])
    assert failures.hidden("x secret-and-more y secret") == "x [key] y [key]"


def test_a_word_that_is_too_short_to_be_a_key_stays():
    """A key of one letter, as servers without keys are given, does not take letters out of messages."""
    assert Failures(address="a", key_name="k", secrets=["x"]).hidden("exact") == "exact"


def test_a_long_message_is_cut(failures):
    """What a provider writes is quoted up to a limit."""
    failed = failures.answered(Answer(status=500, message="é" * 10_000))
    assert failed.message.count("é") == MAX_QUOTED_CHARACTERS - 1


def test_details_have_the_ids_that_a_provider_asks_for(failures):
    """The provider's id of the request, its code and the model are in the details."""
    answer = Answer(status=400, headers={"x-request-id": "req_1"}, code="bad", model="m")
    failed = failures.answered(answer)
    assert failed.details == {
        "status": "400",
        "request_id": "req_1",
        "provider_code": "bad",
        "model": "m",
    }
    assert "asked for m, answered 400" in failed.message


def test_what_has_no_status_has_a_code_too(failures):
    """No connection, silence, a broken stream and a malformed reply are technical, and may be tried again."""
    usage = Usage(input_tokens=3)
    made = [
        failures.unreachable(f"refused {KEY}"),
        failures.silent(600.0, usage),
        failures.broken("cut", usage),
        failures.malformed("no choices", usage),
    ]
    assert [each.code for each in made] == [
        "PROVIDER_UNREACHABLE",
        "PROVIDER_TIMEOUT",
        "STREAM_BROKEN",
        "REPLY_MALFORMED",
    ]
    assert {each.category for each in made} == {"technical"}
    assert [each.usage for each in made] == [None, usage, usage, usage]
    assert "refused [key]" in made[0].message
    assert "sent nothing for 600 s" in made[1].message


NOW = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": NOW}, 30),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:30 GMT", "date": NOW}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "1e12"}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_how_long_to_wait_is_read_in_every_form(headers, seconds):
    """Milliseconds, seconds and dates are read; what makes no sense is as if it were not there."""
    wished = None if seconds is None else timedelta(seconds=seconds)
    assert retry_after(headers) == wished


def test_the_wait_is_in_the_failure(failures):
    """What the provider asks to wait is in the failure, where the policy finds it."""
    failed = failures.answered(Answer(status=429, headers={"retry-after": "2"}))
    assert failed.retry_after == Duration(seconds=2)
