"""`provider_options`: what only one provider understands."""

from __future__ import annotations

import pytest

from stepgraph_client.providers.options import options_of
from stepgraph_client.task_errors import Failed

RESERVED = {"messages": "the field `messages`"}


@pytest.mark.parametrize("text", ["", "{}"])
def test_no_options_are_none(text):
    """Neither an empty text nor an empty object sets anything."""
    assert options_of(text, RESERVED) == {}


def test_options_are_what_the_object_says():
    """Every entry is an option, as it was written."""
    assert options_of('{"seed": 7, "a": {"b": [null]}}', RESERVED) == {
        "seed": 7,
        "a": {"b": [None]},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "provider_options is not JSON: Expecting property name"),
        ('{"a": NaN}', "provider_options is not JSON: JSON has no NaN"),
        ("[1]", r"provider_options must be a JSON object, not \[1\]"),
        ('"x"', 'provider_options must be a JSON object, not "x"'),
        ('{"messages": []}', "provider_options can't set 'messages'; use the field `messages`"),
        ("[" * 100_000, "provider_options is not JSON"),
    ],
    ids=["broken", "NaN", "a list", "text", "reserved", "too deep"],
)
def test_bad_options_say_what_is_wrong_and_what_to_use(text, message):
    """Options that can't be used end the task for good, with what is wrong and what to use instead."""
    with pytest.raises(Failed, match=message) as caught:
        options_of(text, RESERVED)
    failed = caught.value
    assert (failed.code, failed.retryable) == ("OPTIONS_INVALID", False)
    assert failed.details == {"field": "provider_options"}
