"""Every error becomes one status with one ErrorInfo, small enough for every client's trailers."""

from __future__ import annotations

import base64
import logging
import re
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from stepgraph.v1 import error_reason_pb2
from stepgraph_server.api.errors import (
    CODES,
    DETAILS_KEY,
    RETRIED_LATER,
    StatusMaker,
    refusal_of,
    status_of_refusal,
    too_large,
)
from stepgraph_server.core.errors import GraphInvalid, Problem, Quarantined, Refused, Violation
from stepgraph_server.core.instants import SECOND
from stepgraph_server.storage import errors as storage_errors
from stepgraph_server.storage.records import RunKey

PREFIX = "ERROR_REASON_"
SCHEMA = Path(error_reason_pb2.__file__).with_name("error_reason.proto")


@pytest.fixture
def maker():
    return StatusMaker(
        logging.getLogger("stepgraph_server.test"), new_incident_id=lambda: "incident-1"
    )


def details(status):
    """Return the details of a status by the name of their type."""
    [(key, value)] = status.trailers
    assert key == DETAILS_KEY
    parsed = status_pb2.Status.FromString(value)
    assert parsed.code == status.code.value[0]
    assert parsed.message == status.message
    found = {}
    for packed in parsed.details:
        name = packed.TypeName().removeprefix("google.rpc.")
        assert name not in found, "each type of detail comes at most once"
        detail = getattr(error_details_pb2, name)()
        assert packed.Unpack(detail)
        found[name] = detail
    assert found["ErrorInfo"].domain == "stepgraph"
    return found


def as_it_travels(status):
    [(_, value)] = status.trailers
    return len(base64.b64encode(value)) + len(quote(status.message))


def test_every_reason_of_the_schema_has_a_code_and_the_table_has_no_others():
    reasons = {
        value.name.removeprefix(PREFIX) for value in error_reason_pb2.ErrorReason.DESCRIPTOR.values
    }

    assert set(CODES) == reasons - {"UNSPECIFIED"}


def test_the_codes_are_those_that_the_schema_documents():
    documented = re.findall(
        r"// ([A-Z_]+)[.,].*\n\s+ERROR_REASON_([A-Z_]+) = [0-9]+;", SCHEMA.read_text()
    )

    assert {reason: code for code, reason in documented} == {
        reason: code.name for reason, code in CODES.items()
    }


@pytest.mark.parametrize("reason", sorted(CODES))
def test_a_status_has_the_code_of_its_reason_and_one_error_info(reason):
    status = status_of_refusal(Refused(reason, "because", metadata={"run_id": "r1"}))

    assert status.code is CODES[reason]
    info = details(status)["ErrorInfo"]
    assert (info.reason, dict(info.metadata)) == (reason, {"run_id": "r1"})


@pytest.mark.parametrize("reason", sorted(RETRIED_LATER))
def test_what_is_to_be_tried_later_says_when(reason):
    status = status_of_refusal(Refused(reason, "not now"))

    assert details(status)["RetryInfo"].retry_delay.ToMilliseconds() == 1_000


def test_a_refusal_that_knows_when_says_so():
    status = status_of_refusal(Refused("OVERLOADED", "not now", retry_after=3 * SECOND))

    assert details(status)["RetryInfo"].retry_delay.seconds == 3


def test_violations_name_their_fields_and_the_first_is_in_the_metadata():
    violations = [
        Violation(path="labels", message="too many"),
        Violation(path="graph", message="unset", reason="UNKNOWN_VARIANT"),
    ]

    found = details(status_of_refusal(Refused("INVALID_REQUEST", "2 wrong", violations=violations)))

    assert found["ErrorInfo"].metadata["field"] == "labels"
    assert [(v.field, v.description, v.reason) for v in found["BadRequest"].field_violations] == [
        ("labels", "too many", "INVALID_REQUEST"),
        ("graph", "unset", "UNKNOWN_VARIANT"),
    ]


@pytest.mark.parametrize("letter", ["a", "ß", "語", "😀", "\n", "%"])
@pytest.mark.parametrize("count", [1, 5, 2_000])
def test_everything_together_stays_below_4_kib(letter, count):
    long = letter * 5_000
    refused = Refused(
        "OVERLOADED",
        long,
        metadata={f"name_{n}": long for n in range(min(count, 20))},
        violations=[Violation(path=long, message=long)] * count,
        retry_after=SECOND,
    )

    status = status_of_refusal(refused)

    assert as_it_travels(status) < 4_096
    assert details(status)["ErrorInfo"].reason == "OVERLOADED"


def test_a_list_that_is_cut_says_how_many_are_left_out():
    violations = [Violation(path=f"nodes[{n}]", message="is wrong " * 10) for n in range(500)]

    status = status_of_refusal(Refused("INVALID_REQUEST", "500 wrong", violations=violations))

    *first, last = details(status)["BadRequest"].field_violations
    assert len(first) > 5
    assert last.description == f"and {500 - len(first)} more"


def test_a_broken_graph_lists_its_problems_and_counts_them(maker):
    problems = [
        Problem(code="NO_NODES", path="nodes", message="there is no node", hint="Add one."),
        Problem(code="NO_ENTRY", path="entry_point", message="is empty"),
    ]

    status = maker.status_of(GraphInvalid(problems), "RegisterGraph")

    assert status.code is grpc.StatusCode.INVALID_ARGUMENT
    found = details(status)
    assert dict(found["ErrorInfo"].metadata) == {"problems": "2"}
    assert [(v.reason, v.field, v.description) for v in found["BadRequest"].field_violations] == [
        ("NO_NODES", "nodes", "there is no node Add one."),
        ("NO_ENTRY", "entry_point", "is empty"),
    ]


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        (["NOT_YET_SUPPORTED"], "NOT_YET_SUPPORTED"),
        (["UNKNOWN_VARIANT", "UNKNOWN_FIELD"], "UNKNOWN_VARIANT"),
        (["UNKNOWN_VARIANT", "REQUIRED"], "GRAPH_INVALID"),
        (["NOT_YET_SUPPORTED", "UNKNOWN_VARIANT"], "GRAPH_INVALID"),
    ],
)
def test_a_graph_that_another_server_could_take_is_not_called_broken(maker, codes, reason):
    problems = [Problem(code=code, path="nodes[0]", message="is odd") for code in codes]

    found = details(maker.status_of(GraphInvalid(problems), "RegisterGraph"))

    assert found["ErrorInfo"].reason == reason
    assert [v.reason for v in found["BadRequest"].field_violations] == codes


def test_a_quarantined_run_is_lost_data(maker):
    status = maker.status_of(Quarantined("r1", 7, "the bytes of a stranger"), "WatchRun")

    assert status.code is grpc.StatusCode.DATA_LOSS
    info = details(status)["ErrorInfo"]
    assert (info.reason, dict(info.metadata)) == (
        "RUN_QUARANTINED",
        {"run_id": "r1", "last_sequence": "7"},
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            storage_errors.JournalUnavailable("/secret/path", "disk full", "Free space"),
            "JOURNAL_UNAVAILABLE",
        ),
        (storage_errors.RunExists(RunKey("default", "r1")), "RUN_EXISTS"),
        (storage_errors.ValueMismatch(what="digest", expected="a", actual="b"), "INVALID_REQUEST"),
        (storage_errors.ValueTooLarge(10, 12), "PAYLOAD_TOO_LARGE"),
    ],
)
def test_what_a_store_refuses_has_a_reason_and_no_path_of_the_server(maker, error, reason):
    status = maker.status_of(error, "StartRun")

    assert details(status)["ErrorInfo"].reason == reason
    assert "secret" not in str(status)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the secret payload"),
        storage_errors.AppendInvalid(RunKey("default", "r1"), "the secret payload"),
        Refused("INVENTED_REASON", "the secret payload"),
    ],
)
def test_what_is_unexpected_is_logged_and_the_caller_gets_an_id_and_nothing_else(
    maker, error, caplog
):
    with caplog.at_level("ERROR", logger="stepgraph_server.test"):
        status = maker.status_of(error, "StartRun")

    assert status.code is grpc.StatusCode.INTERNAL
    assert dict(details(status)["ErrorInfo"].metadata) == {"incident_id": "incident-1"}
    assert b"secret" not in status.trailers[0][1]
    [record] = caplog.records
    assert (record.action, record.incident_id, record.method) == (
        "call.fault",
        "incident-1",
        "StartRun",
    )
    assert "the secret payload" in caplog.text


def test_incident_ids_differ():
    maker = StatusMaker(logging.getLogger("stepgraph_server.test"))

    ids = {
        details(maker.status_of(ValueError(), "x"))["ErrorInfo"].metadata["incident_id"]
        for _ in range(3)
    }

    assert len(ids) == 3


def test_too_large_says_the_size_and_the_limit_once():
    refused = too_large("chunk", limit_bytes=1_000, size_bytes=12_345)

    assert refused.metadata == {"field": "chunk", "limit_bytes": "1000", "size_bytes": "12345"}
    assert refused.message == "chunk: has 12,345 bytes, of at most 1,000"


def test_a_stored_value_that_is_too_large_says_how_large_it_is():
    refused = refusal_of(storage_errors.ValueTooLarge(10, 12))

    assert refused.message == "header.value: has 12 bytes, of at most 10"


def test_an_unexpected_error_is_no_refusal():
    assert refusal_of(KeyError("x")) is None
