from __future__ import annotations

import grpc
import pytest
from google.rpc import status_pb2

from stepgraph.v1.failure_pb2 import Failure
from stepgraph.v1.run_pb2 import Run
from stepgraph_client import errors
from stepgraph_client.errors import Status, Violation, failure_text, read_status, refusal
from tests.support.fake_server import Refusal


async def refused(client, server, given: Refusal) -> errors.StepgraphError:
    server.refuse("GetRun", *[given] * 10)
    with pytest.raises(errors.StepgraphError) as caught:
        await client.get_run("r")
    return caught.value


async def test_a_status_is_read_with_all_its_details(client, server) -> None:
    error = await refused(
        client,
        server,
        Refusal(
            code=grpc.StatusCode.INVALID_ARGUMENT,
            reason="GRAPH_INVALID",
            message="the graph is broken",
            metadata={"problems": "2"},
            violations=[("nodes[0].id", "is empty", "ID_INVALID")],
        ),
    )
    assert isinstance(error, errors.GraphInvalid)
    assert (error.reason, error.metadata) == ("GRAPH_INVALID", {"problems": "2"})
    assert error.violations == (
        Violation(path="nodes[0].id", message="is empty", code="ID_INVALID"),
    )
    assert str(error) == (
        "GRAPH_INVALID: the graph is broken\n  nodes[0].id: is empty [ID_INVALID]"
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidRequest),
        (grpc.StatusCode.OUT_OF_RANGE, errors.InvalidRequest),
        (grpc.StatusCode.NOT_FOUND, errors.NotFound),
        (grpc.StatusCode.ALREADY_EXISTS, errors.AlreadyExists),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.WrongState),
        (grpc.StatusCode.ABORTED, errors.WrongState),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.TooMuch),
        (grpc.StatusCode.UNAUTHENTICATED, errors.NotPermitted),
        (grpc.StatusCode.PERMISSION_DENIED, errors.NotPermitted),
        (grpc.StatusCode.UNIMPLEMENTED, errors.NotSupported),
        (grpc.StatusCode.INTERNAL, errors.ServerFault),
        (grpc.StatusCode.DATA_LOSS, errors.ServerFault),
    ],
)
async def test_each_code_has_the_class_of_what_a_caller_can_do(client, server, code, kind) -> None:
    error = await refused(client, server, Refusal(code=code, reason="SOMETHING"))
    assert type(error) is kind
    assert isinstance(error, errors.Refused)


async def test_a_status_without_details_is_told_as_it_is(client, server) -> None:
    error = await refused(client, server, Refusal(code=grpc.StatusCode.NOT_FOUND, message=""))
    assert isinstance(error, errors.NotFound)
    assert error.reason == ""
    assert str(error) == "the server refused the call with NOT_FOUND"


def test_details_that_cannot_be_read_hide_nothing() -> None:
    trailers = grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff\xff"))
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), trailers, details="gone"
    )
    assert read_status(error) == Status(code=grpc.StatusCode.NOT_FOUND, message="gone", metadata={})


@pytest.mark.parametrize(
    ("code", "reason", "lost", "retryable"),
    [
        (grpc.StatusCode.UNAVAILABLE, "", True, True),
        (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN", True, True),
        (grpc.StatusCode.INTERNAL, "", True, True),
        (grpc.StatusCode.INTERNAL, "INTERNAL", False, False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", False, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_EXCEEDED", False, False),
        (grpc.StatusCode.NOT_FOUND, "", False, False),
    ],
)
def test_only_what_was_lost_or_asked_for_is_tried_again(code, reason, lost, retryable) -> None:
    status = Status(code=code, message="", reason=reason, metadata={})
    assert (status.lost, status.retryable) == (lost, retryable)


def test_a_server_that_is_away_is_told_with_its_address_and_what_to_do() -> None:
    status = Status(code=grpc.StatusCode.UNAVAILABLE, message="refused", metadata={})
    error = errors.Unreachable("here:1", status, tries=3)
    assert str(error) == (
        "can't reach the stepgraph server at here:1, after 3 tries: refused. "
        "Is it running (`stepgraph serve`), and is the address right?"
    )


def test_a_run_that_did_not_complete_says_why_and_where_to_look() -> None:
    run = Run(run_id="r", failure=Failure(code="TOOL_ERROR", message="It broke.", source="1/act"))
    failed = errors.RunFailed(run)
    assert str(failed) == (
        "run r failed: TOOL_ERROR: It broke (from 1/act). "
        "See what happened: `stepgraph runs watch r`"
    )
    assert failed.failure.code == "TOOL_ERROR"
    assert "was cancelled" in str(errors.RunCancelled(run))
    assert failure_text(Failure()) == "no reason was given"


def test_a_reason_is_said_once() -> None:
    status = Status(
        code=grpc.StatusCode.NOT_FOUND,
        message="RUN_NOT_FOUND: there is no run",
        reason="RUN_NOT_FOUND",
        metadata={},
    )
    assert str(refusal(status)) == "RUN_NOT_FOUND: there is no run"


def test_a_lone_violation_is_not_said_twice() -> None:
    violation = Violation(path="answer.choose", message="no such choice", code="INVALID_REQUEST")
    status = Status(
        code=grpc.StatusCode.INVALID_ARGUMENT,
        message="no such choice",
        reason="ANSWER_INVALID",
        metadata={},
        violations=(violation,),
    )
    assert str(refusal(status)) == "ANSWER_INVALID: no such choice (at answer.choose)"


def test_details_of_a_kind_that_cannot_be_read_are_left_out() -> None:
    broken = status_pb2.Status(code=5)
    broken.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")
    broken.details.add(type_url="type.googleapis.com/google.rpc.Help", value=b"")
    trailers = grpc.aio.Metadata(
        ("other", "x"), ("grpc-status-details-bin", broken.SerializeToString())
    )
    error = grpc.aio.AioRpcError(grpc.StatusCode.NOT_FOUND, grpc.aio.Metadata(), trailers)
    assert read_status(error).reason == ""


@pytest.mark.parametrize(
    ("code", "reason", "text"),
    [
        (
            grpc.StatusCode.CANCELLED,
            "",
            "or a proxy before it, broke the call off: CANCELLED: why. ",
        ),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "here:1 did not answer in time: why. "),
        (grpc.StatusCode.UNAVAILABLE, "SHUTTING_DOWN", "does not serve now: SHUTTING_DOWN: why. "),
    ],
)
def test_a_server_that_is_there_is_not_said_to_be_out_of_reach(code, reason, text) -> None:
    """Who answered, or broke a call off, was reached."""
    status = Status(code=code, message="why", reason=reason, metadata={})
    error = errors.Unreachable("here:1", status)
    assert text in str(error)
    assert "can't reach" not in str(error)


def test_a_server_without_room_is_a_refusal() -> None:
    """RESOURCE_EXHAUSTED is an answer, with or without a reason."""
    status = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED, message="too many", metadata={})
    assert isinstance(refusal(status), errors.TooMuch)
    assert not status.lost
