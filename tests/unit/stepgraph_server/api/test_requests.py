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
from stepgraph_server.api.requests import (
    RULES,
    RequestChecker,
    RequestLimits,
    fingerprint,
    namespace_of,
)
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.values import ValueLimits

LIMITS = RequestLimits(
    values=ValueLimits(max_inline_bytes=1_000, max_stored_bytes=10_000),
    max_labels=3,
    max_graph_bytes=500,
    max_start_bytes=2_000,
)
DIGEST = "sha256:" + "0" * 64
SERVICES = (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)


def found(request):
    """Return (path, reason) of everything that is wrong, sorted."""
    try:
        RequestChecker(LIMITS).check(request)
    except Refused as error:
        return sorted((v.path, v.reason) for v in error.violations)
    return []


def start(**fields):
    request = run_service_pb2.StartRunRequest(**fields)
    if not request.HasField("graph"):
        request.graph.reference = "greet"
    return request


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
    "ListRunsRequest": run_service_pb2.ListRunsRequest(),
    "WatchRunRequest": run_service_pb2.WatchRunRequest(run_id="r1"),
    "WatchRunsRequest": run_service_pb2.WatchRunsRequest(),
    "GetRunStateRequest": run_service_pb2.GetRunStateRequest(run_id="r1"),
    "CancelRunRequest": run_service_pb2.CancelRunRequest(run_id="r1"),
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
    (run_service_pb2.GetRunRequest(), {"run_id": "INVALID_REQUEST"}),
    (run_service_pb2.GetRunRequest(run_id="/"), {"run_id": "INVALID_REQUEST"}),
    (run_service_pb2.GetRunRequest(run_id="x" * 129), {"run_id": "INVALID_REQUEST"}),
    (
        run_service_pb2.CancelRunRequest(run_id="r", reason="x" * 1_025),
        {"reason": "INVALID_REQUEST"},
    ),
    (
        run_service_pb2.WatchRunRequest(run_id="r", include_descendants=True),
        {"include_descendants": "NOT_YET_SUPPORTED"},
    ),
    (
        run_service_pb2.WatchRunRequest(run_id="r", resume_token="x"),
        {"resume_token": "INVALID_REQUEST"},
    ),
    (
        run_service_pb2.WatchRunsRequest(filter={"statuses": [2]}),
        {"filter.statuses": "INVALID_REQUEST"},
    ),
    (
        run_service_pb2.ListRunsRequest(filter={"statuses": [0], "graph": "@"}),
        {"filter.statuses[0]": "INVALID_REQUEST", "filter.graph": "INVALID_REQUEST"},
    ),
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


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"graph": {"same_version": {}}}, {"graph.same_version": "INVALID_REQUEST"}),
        ({"graph": {"reference": "?"}}, {"graph.reference": "INVALID_REQUEST"}),
        (
            {"graph": {"definition": {"name": "x" * 600}}},
            {"graph.definition": "PAYLOAD_TOO_LARGE"},
        ),
        ({"delay": Duration(seconds=1)}, {"delay": "NOT_YET_SUPPORTED"}),
        ({"continue_from": "r0"}, {"continue_from": "NOT_YET_SUPPORTED"}),
        ({"time_limit": Duration()}, {"time_limit": "INVALID_REQUEST"}),
        ({"labels": {str(n): "" for n in range(4)}}, {"labels": "LIMIT_EXCEEDED"}),
        ({"labels": {"": "x"}}, {'labels[""]': "INVALID_REQUEST"}),
        ({"selector": {"a": "x" * 129}}, {'selector["a"]': "INVALID_REQUEST"}),
        (
            {"input": {"variables": {"1": {"text": "x"}, "ok": {}}}},
            {
                "input.variables": "INVALID_REQUEST",
                "input.variables.ok": "UNKNOWN_VARIANT",
            },
        ),
        (
            {
                "initial_state": {
                    "iteration_count": 1,
                    "token_budget_remaining": 0,
                    "interrupt_points": ["i"],
                    "metadata": {"a": "x" * 5_000},
                }
            },
            {
                "initial_state.iteration_count": "INVALID_REQUEST",
                "initial_state.token_budget_remaining": "INVALID_REQUEST",
                "initial_state.interrupt_points": "INVALID_REQUEST",
                "initial_state.metadata.a": "INVALID_REQUEST",
                "input": "PAYLOAD_TOO_LARGE",
            },
        ),
        (
            {"input": {"variables": {"_approval": {"text": "approve"}}, "messages": [{}]}},
            {
                "input.variables._approval": "INVALID_REQUEST",
                "input.messages[0].role": "INVALID_REQUEST",
            },
        ),
        (
            {"initial_state": {"metadata": {str(n): "" for n in range(65)}}},
            {"initial_state.metadata": "LIMIT_EXCEEDED"},
        ),
        (
            {"input": {"variables": {name: {"text": "x" * 900} for name in "abc"}}},
            {"input": "PAYLOAD_TOO_LARGE"},
        ),
    ],
)
def test_what_is_wrong_with_a_start_is_found_also_inside_start_and_watch(fields, expected):
    assert dict(found(start(**fields))) == expected
    watched = run_service_pb2.StartAndWatchRunRequest(start=start(**fields))
    assert dict(found(watched)) == {f"start.{path}": reason for path, reason in expected.items()}


def test_a_start_without_a_graph_is_refused():
    assert found(run_service_pb2.StartRunRequest()) == [("graph", "UNKNOWN_VARIANT")]


def test_everything_that_is_wrong_is_listed_at_once():
    request = start(run_id="?", labels={"": ""}, delay=Duration(seconds=1))

    assert found(request) == [
        ("delay", "NOT_YET_SUPPORTED"),
        ('labels[""]', "INVALID_REQUEST"),
        ("run_id", "INVALID_REQUEST"),
    ]


def test_a_request_without_a_rule_is_a_fault_and_not_accepted():
    with pytest.raises(KeyError):
        RequestChecker(LIMITS).check(run_service_pb2.ForkRunRequest())


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
