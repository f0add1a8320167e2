"""Requests about runs, by shape: the rules of RunService. See requests.py, whose table names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.api.fields import Rule, rule
from stepgraph_server.core.names import MAX_CORRELATION_CHARACTERS
from stepgraph_server.core.state_checks import check_state
from stepgraph_server.core.values import check_message, check_update, check_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1 import graph_pb2, run_pb2, run_service_pb2, state_pb2
    from stepgraph_server.api.fields import FieldCheck

MAX_REASON_CHARACTERS: Final = 1_024
MAX_TASK_ID_CHARACTERS: Final = 4_096
MAX_METADATA_CHARACTERS: Final = 4_096


def _start_run(
    check: FieldCheck, request: run_service_pb2.StartRunRequest, prefix: str = ""
) -> None:
    check.namespace(request, f"{prefix}namespace")
    check.request_id(request.request_id)
    check.run_id(request.run_id, f"{prefix}run_id", may_be_empty=True)
    _graph_to_start(check, request.graph, f"{prefix}graph")
    check.labels(request.labels, f"{prefix}labels")
    check.labels(request.selector, f"{prefix}selector")
    if request.HasField("time_limit"):
        check.time_limit(request.time_limit, f"{prefix}time_limit")
    if request.HasField("continue_from"):
        check.run_id(request.continue_from, f"{prefix}continue_from")
    if request.HasField("initial_state"):
        _initial_state(check, request.initial_state, f"{prefix}initial_state")
    _input(check, request.input, f"{prefix}input")
    # Both go into one event, which must fit into a message that clients with default limits can read.
    size = request.initial_state.ByteSize() + request.input.ByteSize()
    if size > check.limits.max_start_bytes:
        check.findings.too_large(
            f"{prefix}input", size, check.limits.max_start_bytes, "Store large values first."
        )


def _graph_to_start(check: FieldCheck, graph: graph_pb2.GraphRef, path: str) -> None:
    match graph.WhichOneof("kind"):
        case "reference":
            check.graph(graph.reference, f"{path}.reference")
        case "definition":
            check.definition(graph.definition, f"{path}.definition")
        case "same_version":
            check.findings.add(f"{path}.same_version", "only a graph can refer to itself")
        case None:
            # A newer client's variant was reported already, with its number.
            if not graph.ByteSize():
                check.findings.add(
                    path, "is unset; set reference or definition", reason="UNKNOWN_VARIANT"
                )


def _initial_state(check: FieldCheck, state: state_pb2.GraphState, path: str) -> None:
    if state.iteration_count:
        check.findings.add(f"{path}.iteration_count", "is counted by the server; leave it out")
    if state.HasField("token_budget_remaining"):
        check.findings.add(f"{path}.token_budget_remaining", "use token_limit of the request")
    if state.interrupt_points:
        check.findings.add(f"{path}.interrupt_points", "is kept by the server; leave it out")
    check.payload(check_state(state, path, check.limits.values))
    check.not_reserved(state.variables, f"{path}.variables")
    for name, value in state.metadata.items():
        check.text(value, f"{path}.metadata.{name}", MAX_METADATA_CHARACTERS)


def _input(check: FieldCheck, given: run_pb2.RunInput, path: str) -> None:
    if given.HasField("value") and given.value.WhichOneof("kind") is None:
        problem = "is set and empty; set text, json, blob, stored or secret, or leave it out"
        check.findings.add(f"{path}.value", problem, reason="UNKNOWN_VARIANT")
    check.variables(given.variables, f"{path}.variables")
    for index, message in enumerate(given.messages):
        check.payload(check_message(message, f"{path}.messages[{index}]", check.limits.values))


def _start_and_watch_run(
    check: FieldCheck, request: run_service_pb2.StartAndWatchRunRequest
) -> None:
    _start_run(check, request.start, "start.")


def _run(
    check: FieldCheck, request: run_service_pb2.GetRunRequest | run_service_pb2.ExplainRunRequest
) -> None:
    check.namespace(request)
    check.run_id(request.run_id)


def _filter(check: FieldCheck, run_filter: run_service_pb2.RunFilter) -> None:
    check.graph(run_filter.graph, "filter.graph", may_be_empty=True)
    check.labels(run_filter.labels, "filter.labels")
    for index, status in enumerate(run_filter.statuses):
        if status == 0:
            check.findings.add(f"filter.statuses[{index}]", "must say a status")


def _list_runs(check: FieldCheck, request: run_service_pb2.ListRunsRequest) -> None:
    check.namespace(request)
    _filter(check, request.filter)
    check.page(request)


def _watch_run(check: FieldCheck, request: run_service_pb2.WatchRunRequest) -> None:
    check.namespace(request)
    check.run_id(request.run_id)
    if request.include_descendants:
        if request.after_sequence:
            message = "counts the events of one run; with include_descendants use resume_token"
            check.findings.add("after_sequence", message)
    elif request.resume_token:
        check.findings.add("resume_token", "is only used with include_descendants")


def _watch_runs(check: FieldCheck, request: run_service_pb2.WatchRunsRequest) -> None:
    check.namespace(request)
    _filter(check, request.filter)
    if request.filter.statuses:
        check.findings.add("filter.statuses", "would change under the watch; leave it out")


def _get_run_state(check: FieldCheck, request: run_service_pb2.GetRunStateRequest) -> None:
    check.namespace(request)
    check.run_id(request.run_id)
    check.page(request)


def _cancel_run(check: FieldCheck, request: run_service_pb2.CancelRunRequest) -> None:
    _change(check, request)
    check.text(request.reason, "reason", MAX_REASON_CHARACTERS)


def _pause_run(check: FieldCheck, request: run_service_pb2.PauseRunRequest) -> None:
    _change(check, request)
    check.text(request.reason, "reason", MAX_REASON_CHARACTERS)


def _unpause_run(check: FieldCheck, request: run_service_pb2.UnpauseRunRequest) -> None:
    _change(check, request)


def _change(
    check: FieldCheck,
    request: run_service_pb2.CancelRunRequest
    | run_service_pb2.PauseRunRequest
    | run_service_pb2.UnpauseRunRequest
    | run_service_pb2.SignalRunRequest
    | run_service_pb2.ForkRunRequest
    | run_service_pb2.RetryRunRequest,
) -> None:
    check.namespace(request)
    check.run_id(request.run_id)
    check.request_id(request.request_id)


def _signal_run(check: FieldCheck, request: run_service_pb2.SignalRunRequest) -> None:
    _change(check, request)
    check.name(request.name, "name")
    check.text(request.correlation, "correlation", MAX_CORRELATION_CHARACTERS)
    if request.HasField("payload") and request.payload.WhichOneof("kind") is not None:
        check.payload(check_value(request.payload, "payload", check.limits.values))


def _fork_run(check: FieldCheck, request: run_service_pb2.ForkRunRequest) -> None:
    _change(check, request)
    check.run_id(request.new_run_id, "new_run_id", may_be_empty=True)
    check.graph(request.graph, may_be_empty=True)
    check.labels(request.labels, "labels")
    if request.HasField("time_limit"):
        check.time_limit(request.time_limit, "time_limit")
    for number, change in enumerate(request.changes):
        _fork_change(check, change, f"changes[{number}]")


def _fork_change(check: FieldCheck, change: run_service_pb2.ForkChange, path: str) -> None:
    match change.WhichOneof("kind"):
        case "answer":
            check.text(
                change.answer.activation_id,
                f"{path}.answer.activation_id",
                MAX_TASK_ID_CHARACTERS,
                may_be_empty=False,
            )
            if not change.answer.HasField("answer"):
                check.findings.add(f"{path}.answer.answer", "is missing")
        case "result":
            check.text(
                change.result.task_id,
                f"{path}.result.task_id",
                MAX_TASK_ID_CHARACTERS,
                may_be_empty=False,
            )
        case "patch":
            check.payload(
                check_update(change.patch.update, f"{path}.patch.update", check.limits.values)
            )
        case None:
            pass  # an unset oneof was reported already


def _retry_run(check: FieldCheck, request: run_service_pb2.RetryRunRequest) -> None:
    _change(check, request)
    check.run_id(request.new_run_id, "new_run_id", may_be_empty=True)


#: By the name of the request type.
RUN_RULES: Final[Mapping[str, Rule]] = {
    "StartRunRequest": rule(_start_run),
    "StartAndWatchRunRequest": rule(_start_and_watch_run),
    "GetRunRequest": rule(_run),
    "ExplainRunRequest": rule(_run),
    "ListRunsRequest": rule(_list_runs),
    "WatchRunRequest": rule(_watch_run),
    "WatchRunsRequest": rule(_watch_runs),
    "GetRunStateRequest": rule(_get_run_state),
    "CancelRunRequest": rule(_cancel_run),
    "PauseRunRequest": rule(_pause_run),
    "UnpauseRunRequest": rule(_unpause_run),
    "SignalRunRequest": rule(_signal_run),
    "ForkRunRequest": rule(_fork_run),
    "RetryRunRequest": rule(_retry_run),
}
