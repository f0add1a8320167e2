"""Nothing that this server can't read, and no payload that it can't keep, hides inside a request."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1 import (
    conversation_pb2,
    edge_condition_pb2,
    graph_pb2,
    graph_service_pb2,
    interrupt_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_pb2,
)
from stepgraph_server.api.contents import ContentWalk
from stepgraph_server.api.findings import Findings
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.values import ValueLimits

LIMITS = ValueLimits(max_inline_bytes=100, max_stored_bytes=1_000)


def shown(value):
    """Return a short id for a message in a list of parameters."""
    return " ".join(str(value).split()) if isinstance(value, Message) else None


DIGEST = "sha256:" + "0" * 64

# Field 500, a varint: what a newer client might send.
FROM_THE_FUTURE = b"\xa0\x1f\x01"


def future(message_type):
    """Return a message of this type with a field that nobody knows yet."""
    return message_type.FromString(FROM_THE_FUTURE)


def found(message):
    """Return (path, reason) of everything that is wrong."""
    findings = Findings()
    ContentWalk(LIMITS, findings).walk(message)
    try:
        findings.refuse_if_any()
    except Refused as error:
        return [(v.path, v.reason) for v in error.violations]
    return []


def start(**variables):
    request = run_service_pb2.StartRunRequest()
    for name, value in variables.items():
        request.input.variables[name].CopyFrom(value)
    return request


@pytest.mark.parametrize(
    "value",
    [
        value_pb2.Value(),
        value_pb2.Value(text="x" * 100),
        value_pb2.Value(json='{"a": [1, 9007199254740993]}'),
        value_pb2.Value(blob=value_pb2.Blob(media_type="image/png", data=b"\xff" * 100)),
        value_pb2.Value(secret=value_pb2.Secret(name="api_key")),
        value_pb2.Value(
            stored=value_pb2.StoredValue(
                digest=DIGEST, size_bytes=1_000, form=value_pb2.VALUE_FORM_TEXT
            )
        ),
    ],
    ids=shown,
)
def test_good_values_pass(value):
    assert found(start(x=value)) == []


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (value_pb2.Value(text="ß" * 51), "", "PAYLOAD_TOO_LARGE"),
        (value_pb2.Value(json='"' + "x" * 100 + '"'), "", "PAYLOAD_TOO_LARGE"),
        (value_pb2.Value(blob=value_pb2.Blob(data=b"x" * 101)), "", "PAYLOAD_TOO_LARGE"),
        (value_pb2.Value(json="{1}"), "", "JSON_INVALID"),
        (value_pb2.Value(json='{"a": NaN}'), "", "JSON_INVALID"),
        (value_pb2.Value(json='{"a": 1, "a": 2}'), "", "JSON_INVALID"),
        (
            value_pb2.Value(blob=value_pb2.Blob(media_type="x" * 300)),
            ".",
            "INVALID_REQUEST",
        ),
        (
            value_pb2.Value(secret=value_pb2.Secret(name="no spaces")),
            ".secret.name",
            "INVALID_REQUEST",
        ),
        (
            value_pb2.Value(stored=value_pb2.StoredValue(digest="md5:1", form=1)),
            ".stored.digest",
            "INVALID_REQUEST",
        ),
        (
            value_pb2.Value(stored=value_pb2.StoredValue(digest=DIGEST)),
            ".stored.form",
            "INVALID_REQUEST",
        ),
        (
            value_pb2.Value(stored=value_pb2.StoredValue(digest=DIGEST, form=1, size_bytes=1_001)),
            ".stored.size_bytes",
            "PAYLOAD_TOO_LARGE",
        ),
        (
            value_pb2.Value(stored=value_pb2.StoredValue(digest=DIGEST, form=99)),
            ".stored.form",
            "UNKNOWN_VARIANT",
        ),
    ],
    ids=shown,
)
def test_bad_values_are_found_with_their_path(value, path, reason):
    [(at, why)] = found(start(x=value))

    assert at.startswith(f"input.variables.x{path}")
    assert why == reason


def test_json_says_where_it_is_broken():
    findings = Findings()
    ContentWalk(LIMITS, findings).walk(start(x=value_pb2.Value(json='{\n "a" 1}')))

    with pytest.raises(Refused) as caught:
        findings.refuse_if_any()

    assert (caught.value.metadata["line"], caught.value.metadata["column"]) == ("2", "6")


def test_a_variant_of_a_newer_client_is_found_wherever_it_hides():
    request = start(x=future(value_pb2.Value))
    request.initial_state.conversation.messages.add(role=conversation_pb2.ROLE_USER).content.append(
        future(conversation_pb2.ContentBlock)
    )

    assert found(request) == [
        ("initial_state.conversation.messages[0].content[0]", "UNKNOWN_VARIANT"),
        ("input.variables.x", "UNKNOWN_VARIANT"),
    ]


def test_an_unknown_field_of_the_request_itself_is_found():
    assert found(future(run_service_pb2.GetRunRequest)) == [("GetRunRequest", "UNKNOWN_VARIANT")]


@pytest.mark.parametrize("number", [77, -1])
def test_an_unknown_number_of_an_enum_is_found(number):
    request = run_service_pb2.ListRunsRequest()
    request.filter.statuses.extend([2, number])

    assert found(request) == [("filter.statuses", "UNKNOWN_VARIANT")]


def test_an_unset_oneof_is_found_unless_unset_has_a_meaning():
    request = interrupt_service_pb2.AnswerInterruptRequest(
        interrupt_id="i", answer=interrupt_pb2.InterruptAnswer()
    )

    assert found(request) == [("answer", "UNKNOWN_VARIANT")]
    assert found(interrupt_service_pb2.AnswerInterruptRequest()) == [("target", "UNKNOWN_VARIANT")]
    assert found(run_service_pb2.StartRunRequest(graph=graph_pb2.GraphRef())) == []


def test_what_stands_inside_a_graph_is_left_to_the_check_of_graphs():
    request = graph_service_pb2.RegisterGraphRequest()
    request.graph.nodes.add(id="a", action=graph_pb2.NodeAction())
    request.graph.edges.add().condition.CopyFrom(future(edge_condition_pb2.EdgeCondition))

    assert found(request) == []


@pytest.mark.parametrize(
    "duration",
    [Duration(seconds=-1), Duration(nanos=-1), Duration(nanos=10**9), Duration(seconds=10**12)],
    ids=shown,
)
def test_durations_are_not_negative_and_in_range(duration):
    assert found(run_service_pb2.StartRunRequest(time_limit=duration)) == [
        ("time_limit", "INVALID_REQUEST")
    ]


@pytest.mark.parametrize(
    "timestamp",
    [Timestamp(seconds=-(10**11)), Timestamp(seconds=10**12), Timestamp(nanos=-1)],
    ids=shown,
)
def test_times_are_in_range(timestamp):
    request = run_service_pb2.ListRunsRequest()
    request.filter.create_time_min.CopyFrom(timestamp)

    assert found(request) == [("filter.create_time_min", "INVALID_REQUEST")]


def test_looking_ends_at_some_point():
    request = start(**{f"x{n}": value_pb2.Value(json="no") for n in range(1_000)})

    assert len(found(request)) == 100
