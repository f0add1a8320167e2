"""Whatever is wrong with a request by itself is found, all of it, before a servicer sees it."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message_factory import GetMessageClass

from stepgraph.v1 import (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_pb2,
    value_service_pb2,
)
from stepgraph_server.api.requests import RULES, RequestChecker, fingerprint, namespace_of
from stepgraph_server.core.errors import Refused
from tests.support.checked_requests import DIGEST, LIMITS, found, start

SERVICES = (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)


def with_graph(request, size=100):
    request.graph.name = "g" * size
    return request


# What each request needs at least.
MINIMAL = {
    "RegisterGraphRequest": with_graph(graph_service_pb2.RegisterGraphRequest()),
    "ValidateGraphRequest": with_graph(graph_service_pb2.ValidateGraphRequest()),
    "GetGraphRequest": graph_service_pb2.GetGraphRequest(graph="greet@3"),
    "ListGraphsRequest": graph_service_pb2.ListGraphsRequest(),
    "ListGraphVersionsRequest": graph_service_pb2.ListGraphVersionsRequest(name="greet"),
    "RenderGraphRequest": graph_service_pb2.RenderGraphRequest(run_id="r1"),
    "StartRunRequest": start(),
    "StartAndWatchRunRequest": run_service_pb2.StartAndWatchRunRequest(start=start()),
    "GetRunRequest": run_service_pb2.GetRunRequest(run_id="r1"),
    "ExplainRunRequest": run_service_pb2.ExplainRunRequest(run_id="r1"),
    "ListRunsRequest": run_service_pb2.ListRunsRequest(),
    "WatchRunRequest": run_service_pb2.WatchRunRequest(run_id="r1"),
    "WatchRunsRequest": run_service_pb2.WatchRunsRequest(),
    "GetRunStateRequest": run_service_pb2.GetRunStateRequest(run_id="r1"),
    "CancelRunRequest": run_service_pb2.CancelRunRequest(run_id="r1"),
    "PauseRunRequest": run_service_pb2.PauseRunRequest(run_id="r1"),
    "UnpauseRunRequest": run_service_pb2.UnpauseRunRequest(run_id="r1"),
    "SignalRunRequest": run_service_pb2.SignalRunRequest(run_id="r1", name="paid"),
    "ForkRunRequest": run_service_pb2.ForkRunRequest(run_id="r1"),
    "RetryRunRequest": run_service_pb2.RetryRunRequest(run_id="r1"),
    "AnswerInterruptRequest": interrupt_service_pb2.AnswerInterruptRequest(
        interrupt_id="i1", answer={"proceed": {}}
    ),
    "GetInterruptRequest": interrupt_service_pb2.GetInterruptRequest(interrupt_id="i1"),
    "ListInterruptsRequest": interrupt_service_pb2.ListInterruptsRequest(),
    "ReadTaskInputRequest": executor_service_pb2.ReadTaskInputRequest(
        attempt={"task_id": "r1/1/a/t0/e0", "attempt": 1}, instance_token=b"x" * 16
    ),
    "ListExecutorsRequest": executor_service_pb2.ListExecutorsRequest(),
    "ReadValueRequest": value_service_pb2.ReadValueRequest(digest=DIGEST),
}


def test_every_rule_has_a_minimal_request_here_which_passes():
    assert MINIMAL.keys() == RULES.keys()
    assert {name: found(request) for name, request in MINIMAL.items()} == {
        name: [] for name in RULES
    }


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_request_has_its_namespace_checked(name):
    request = type(MINIMAL[name])()
    request.CopyFrom(MINIMAL[name])
    inner = request.start if name == "StartAndWatchRunRequest" else request
    inner.namespace = "no spaces"

    [(path, reason)] = found(request)

    assert path.endswith("namespace")
    assert reason == "INVALID_REQUEST"


@pytest.mark.parametrize("name", sorted(RULES))
def test_every_page_size_and_request_id_is_checked(name):
    request = type(MINIMAL[name])()
    request.CopyFrom(MINIMAL[name])
    fields = request.DESCRIPTOR.fields_by_name
    expected = []
    if "page_size" in fields:
        request.page_size = -1
        expected.append("page_size")
    if "request_id" in fields:
        request.request_id = "ü" * 65
        expected.append("request_id")

    assert [path for path, _ in found(request)] == expected


WRONG = [
    (start(input={"value": {}}), {"input.value": "UNKNOWN_VARIANT"}),
    (graph_service_pb2.RegisterGraphRequest(), {"graph": "INVALID_REQUEST"}),
    (
        with_graph(graph_service_pb2.RegisterGraphRequest(), 600),
        {"graph": "PAYLOAD_TOO_LARGE"},
    ),
    (graph_service_pb2.GetGraphRequest(), {"graph": "INVALID_REQUEST"}),
    (graph_service_pb2.GetGraphRequest(graph="a@0"), {"graph": "INVALID_REQUEST"}),
    (graph_service_pb2.GetGraphRequest(graph="a b@1"), {"graph": "INVALID_REQUEST"}),
    (graph_service_pb2.GetGraphRequest(graph="sha256:12"), {"graph": "INVALID_REQUEST"}),
    (graph_service_pb2.ListGraphVersionsRequest(name="a@1"), {"name": "INVALID_REQUEST"}),
    (graph_service_pb2.RenderGraphRequest(), {"graph": "INVALID_REQUEST"}),
    (
        interrupt_service_pb2.AnswerInterruptRequest(
            interrupt_id="", answered_by="x" * 300, answer={"proceed": {}}
        ),
        {"interrupt_id": "INVALID_REQUEST", "answered_by": "INVALID_REQUEST"},
    ),
    (
        interrupt_service_pb2.AnswerInterruptRequest(external_token="x" * 600),
        {"external_token": "INVALID_REQUEST", "answer": "INVALID_REQUEST"},
    ),
    (
        interrupt_service_pb2.AnswerInterruptRequest(
            interrupt_id="i", answer={"proceed_with": {"variables": {"_approval": {}}}}
        ),
        {"answer.proceed_with.variables._approval": "UNKNOWN_VARIANT"},
    ),
    (
        interrupt_service_pb2.ListInterruptsRequest(run_id="!"),
        {"run_id": "INVALID_REQUEST"},
    ),
    (
        executor_service_pb2.ReadTaskInputRequest(),
        {
            "attempt.attempt": "INVALID_REQUEST",
            "attempt.task_id": "INVALID_REQUEST",
            "instance_token": "INVALID_REQUEST",
        },
    ),
    (value_service_pb2.ReadValueRequest(digest="x"), {"digest": "INVALID_REQUEST"}),
]


@pytest.mark.parametrize(("request_", "expected"), WRONG, ids=[str(n) for n in range(len(WRONG))])
def test_what_is_wrong_is_found(request_, expected):
    assert dict(found(request_)) == expected


def test_everything_that_is_wrong_is_listed_at_once():
    request = start(run_id="?", labels={"": ""}, time_limit=Duration())

    assert found(request) == [
        ('labels[""]', "INVALID_REQUEST"),
        ("run_id", "INVALID_REQUEST"),
        ("time_limit", "INVALID_REQUEST"),
    ]


def test_a_request_without_a_rule_is_a_fault_and_not_accepted():
    with pytest.raises(KeyError):
        RequestChecker(LIMITS).check(run_service_pb2.DeleteRunRequest())


def test_rules_are_for_requests_that_exist():
    inputs = {
        GetMessageClass(method.input_type).DESCRIPTOR.name
        for module in SERVICES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert set(RULES) < inputs


@pytest.mark.parametrize(
    ("value", "namespace", "paths"),
    [
        ({"form": 1, "size_bytes": 10}, "", []),
        ({"form": 1, "digest": DIGEST}, "team", []),
        ({"form": 1, "digest": "x"}, "", ["header.value.digest"]),
        ({"size_bytes": 20_000}, "", ["header.value.form", "header.value.size_bytes"]),
        (None, "?", ["header.namespace", "header.value"]),
    ],
)
def test_the_header_of_a_value_is_checked(value, namespace, paths):
    header = value_service_pb2.WriteValueRequest.Header(
        namespace=namespace, value=None if value is None else value_pb2.StoredValue(**value)
    )
    try:
        RequestChecker(LIMITS).check_header(header)
        wrong = []
    except Refused as error:
        wrong = sorted(v.path for v in error.violations)

    assert wrong == paths


def test_a_fingerprint_leaves_out_what_the_request_is_kept_under():
    one = start(request_id="a", namespace="default", labels={"x": "1", "y": "2"})
    same = start(request_id="b", labels={"y": "2", "x": "1"})
    other = start(request_id="a", labels={"x": "1"})

    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    assert one.request_id == "a"


def test_the_empty_namespace_is_the_default_one():
    assert namespace_of(start()) == "default"
    assert namespace_of(start(namespace="team")) == "team"
