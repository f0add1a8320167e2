from __future__ import annotations

import re
import string

import grpc
import pytest

from stepgraph.v1.error_reason_pb2 import ErrorReason
from stepgraph_client.command.advice import _BY_REASON, advice
from stepgraph_client.errors import Status, refusal


def refused(code: grpc.StatusCode, reason: str = "", **metadata: str):
    return refusal(Status(code=code, message="no", reason=reason, metadata=metadata))


def test_a_reason_comes_with_what_to_do_and_its_facts() -> None:
    error = refused(grpc.StatusCode.FAILED_PRECONDITION, "RUN_ENDED", run_id="r1")
    assert advice(error, "stepgraph --server x:1") == (
        "`stepgraph --server x:1 runs get r1` shows how it ended."
    )


def test_a_fact_that_is_missing_or_empty_is_a_placeholder() -> None:
    error = refused(grpc.StatusCode.FAILED_PRECONDITION, "INTERRUPT_ANSWERED", interrupt_id="")
    assert "interrupts get ID`" in advice(error, "stepgraph")


def test_a_reason_without_advice_has_none() -> None:
    assert advice(refused(grpc.StatusCode.INVALID_ARGUMENT, "ANSWER_INVALID"), "stepgraph") == ""


def test_what_is_not_done_yet_is_told_from_what_is_not_known() -> None:
    """A newer server will do the one; the other is an older server, or none of ours."""
    code = grpc.StatusCode.UNIMPLEMENTED
    assert "a later one will" in advice(refused(code, "NOT_YET_SUPPORTED"), "stepgraph")
    assert "`stepgraph doctor`" in advice(refused(code), "stepgraph")


@pytest.mark.parametrize("reason", sorted(_BY_REASON))
def test_advice_is_for_reasons_that_exist_and_verbs_that_do(reason, run) -> None:
    assert f"ERROR_REASON_{reason}" in ErrorReason.keys()  # noqa: SIM118  (an enum of protobuf)
    text = _BY_REASON[reason]
    names = {name for _, name, _, _ in string.Formatter().parse(text) if name}
    assert names <= {"command", "run_id", "interrupt_id"}
    for words in re.findall(r"`\{command\} ([a-z ]+)", text):
        assert run(*words.split(), "--help").code == 0
