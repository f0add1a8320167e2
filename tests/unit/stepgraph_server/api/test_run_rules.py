"""Whatever is wrong with a request about runs is found."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration

from stepgraph.v1 import run_service_pb2
from tests.support.checked_requests import found, start

WRONG = [
    (run_service_pb2.GetRunRequest(), {"run_id": "INVALID_REQUEST"}),
    (run_service_pb2.GetRunRequest(run_id="/"), {"run_id": "INVALID_REQUEST"}),
    (run_service_pb2.GetRunRequest(run_id="x" * 129), {"run_id": "INVALID_REQUEST"}),
    (
        run_service_pb2.CancelRunRequest(run_id="r", reason="x" * 1_025),
        {"reason": "INVALID_REQUEST"},
    ),
    (
        run_service_pb2.PauseRunRequest(reason="x" * 1_025),
        {"reason": "INVALID_REQUEST", "run_id": "INVALID_REQUEST"},
    ),
    (
        run_service_pb2.ForkRunRequest(
            run_id="r",
            graph="a b",
            new_run_id="/",
            time_limit=Duration(),
            changes=[
                {"answer": {}},
                {"result": {"result": {"condition": {"holds": True}}}},
                {"patch": {"update": {"variables": {"_approval": {"text": "x"}}}}},
                {"patch": {"update": {"delete_variables": ["_choice"]}}},
            ],
        ),
        {
            "graph": "INVALID_REQUEST",
            "new_run_id": "INVALID_REQUEST",
            "time_limit": "INVALID_REQUEST",
            "changes[0].answer.activation_id": "INVALID_REQUEST",
            "changes[0].answer.answer": "INVALID_REQUEST",
            "changes[1].result.task_id": "INVALID_REQUEST",
            "changes[2].patch.update.variables._approval": "INVALID_REQUEST",
            "changes[3].patch.update.delete_variables[0]": "INVALID_REQUEST",
        },
    ),
    (
        run_service_pb2.RetryRunRequest(run_id="r", new_run_id="?"),
        {"new_run_id": "INVALID_REQUEST"},
    ),
    (
        run_service_pb2.SignalRunRequest(
            run_id="r", name="no name", correlation="x" * 257, payload={"json": "{"}
        ),
        {
            "name": "INVALID_REQUEST",
            "correlation": "INVALID_REQUEST",
            "payload": "JSON_INVALID",
        },
    ),
    (run_service_pb2.UnpauseRunRequest(run_id=" "), {"run_id": "INVALID_REQUEST"}),
    (
        run_service_pb2.WatchRunRequest(run_id="r", include_descendants=True, after_sequence=3),
        {"after_sequence": "INVALID_REQUEST"},
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
        ({"delay": Duration(seconds=1), "continue_from": "r0"}, {}),
        ({"continue_from": "?"}, {"continue_from": "INVALID_REQUEST"}),
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
