from __future__ import annotations

from datetime import UTC, datetime

import pytest

from stepgraph.v1.conversation_pb2 import ROLE_ASSISTANT, ROLE_USER, Message
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.run_service_pb2 import ForkChange
from stepgraph.v1.state_pb2 import GraphState
from stepgraph.v1.value_pb2 import Value
from stepgraph_client.requests import (
    as_message,
    fork_request,
    run_filter,
    run_status,
    start_request,
    status_name,
)


def test_what_a_run_starts_with_arrives() -> None:
    request = start_request(
        "g",
        {
            "messages": ["hi", Message(role=ROLE_ASSISTANT)],
            "run_id": "r",
            "labels": {"a": "b"},
            "selector": {"c": "d"},
            "max_iterations": 3,
            "token_limit": 4,
            "time_limit": "1m",
            "delay": "2s",
            "continue_from": "old",
            "request_id": "id",
        },
        Value(text="in"),
        {"x": Value(json="1")},
    )
    assert (request.graph.reference, request.run_id, request.request_id) == ("g", "r", "id")
    assert request.input.value.text == "in"
    assert request.input.variables["x"].json == "1"
    assert [each.role for each in request.input.messages] == [ROLE_USER, ROLE_ASSISTANT]
    assert (dict(request.labels), dict(request.selector)) == ({"a": "b"}, {"c": "d"})
    assert (request.max_iterations, request.token_limit) == (3, 4)
    assert (request.time_limit.seconds, request.delay.seconds) == (60, 2)
    assert request.continue_from == "old"


def test_what_is_not_given_stays_absent() -> None:
    request = start_request("g", {}, None, {})
    assert request.WhichOneof("origin") is None
    assert not request.input.HasField("value")
    assert not request.HasField("time_limit")


def test_a_run_may_start_from_a_state() -> None:
    request = start_request("g", {"initial_state": GraphState(active_paradigm="p")}, None, {})
    assert request.initial_state.active_paradigm == "p"


def test_a_fork_says_what_is_different() -> None:
    request = fork_request(
        "r",
        {
            "sequence": 5,
            "changes": [ForkChange()],
            "new_run_id": "n",
            "graph": "g@2",
            "max_iterations": 3,
            "token_limit": 0,
            "time_limit": "1m",
            "labels": {"a": "b"},
        },
    )
    assert (request.run_id, request.sequence, len(request.changes)) == ("r", 5, 1)
    assert request.HasField("token_limit")
    assert request.time_limit.seconds == 60
    assert not fork_request("r", {}).HasField("token_limit")


def test_runs_are_filtered_by_names_of_statuses_and_times() -> None:
    built = run_filter(
        {
            "statuses": ["running", "FAILED"],
            "graph": "g",
            "labels": {"a": "b"},
            "created_from": datetime(2026, 1, 1, tzinfo=UTC),
            "created_before": datetime(2026, 1, 2, tzinfo=UTC),
            "roots_only": True,
        }
    )
    assert list(built.statuses) == [RunStatus.RUN_STATUS_RUNNING, RunStatus.RUN_STATUS_FAILED]
    assert built.create_time_max.seconds - built.create_time_min.seconds == 86_400
    assert built.roots_only


def test_an_unknown_status_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="there are pending, running"):
        run_status("walking")


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        run_filter({"created_from": datetime(2026, 1, 1)})  # noqa: DTZ001


def test_statuses_have_names_and_unknown_ones_their_number() -> None:
    assert status_name(RunStatus.RUN_STATUS_SUSPENDED) == "suspended"
    assert status_name(99) == "status 99"


def test_a_text_is_what_a_user_says() -> None:
    message = as_message("hi")
    assert (message.role, message.content[0].text.text) == (ROLE_USER, "hi")
