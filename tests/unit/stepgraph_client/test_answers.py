from __future__ import annotations

import pytest

from stepgraph.v1.interrupt_pb2 import InterruptAnswer
from stepgraph_client import answers

EVERY = {
    "proceed": answers.proceed(),
    "proceed_with": answers.proceed_with(
        {"city": "Oslo", "days": 3}, tool_args={"q": "x"}, message="hurry"
    ),
    "revise": answers.revise("shorter"),
    "choose": answers.choose("yes"),
    "abort": answers.abort("no"),
    "reply": answers.reply([1, 2]),
    "failed": answers.failed("BROKEN", "it broke"),
}


@pytest.mark.parametrize(("kind", "answer"), EVERY.items())
def test_each_function_makes_the_variant_of_its_name(kind, answer) -> None:
    assert answer.WhichOneof("kind") == kind


def test_every_variant_of_the_schema_has_its_function() -> None:
    # Signals are sent to a run, and no answer of anybody's.
    assert {*EVERY, "signals"} == set(InterruptAnswer.DESCRIPTOR.fields_by_name)


def test_changes_keep_their_types() -> None:
    changes = EVERY["proceed_with"].proceed_with
    assert changes.variables["city"].text == "Oslo"
    assert changes.variables["days"].json == "3"
    assert changes.tool_args == '{"q": "x"}'
    assert changes.message == "hurry"


def test_arguments_that_are_not_given_stay_absent() -> None:
    assert not answers.proceed_with({"a": "b"}).proceed_with.HasField("tool_args")
