"""Requests by shape: what may be said, before anyone looks whether it is true.

Rules: everything that can be wrong with a request by itself is found here, all of it at once, before a servicer sees it, and a
servicer may rely on it. Each request type of each service has a rule in the table, so a new RPC can't forget to have one.
What needs the store, or the rules of graphs and runs, is none of this file's business.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, cast

from stepgraph.v1 import value_pb2
from stepgraph_server.api.contents import ContentWalk
from stepgraph_server.api.findings import Findings
from stepgraph_server.core import canonical, names
from stepgraph_server.core.state_checks import check_state
from stepgraph_server.core.values import check_message, check_value, check_variables
from stepgraph_server.storage.graphs import DIGEST_PREFIX, GraphReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.message import Message

    from stepgraph.v1 import (
        executor_service_pb2,
        graph_pb2,
        graph_service_pb2,
        interrupt_service_pb2,
        run_pb2,
        run_service_pb2,
        state_pb2,
        value_service_pb2,
    )
    from stepgraph_server.core.errors import Violation
    from stepgraph_server.core.values import ValueLimits

DEFAULT_NAMESPACE: Final = "default"
RUN_ID_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_RUN_ID: Final = re.compile(RUN_ID_PATTERN)
MAX_REQUEST_ID_CHARACTERS: Final = 64
MAX_LABEL_CHARACTERS: Final = 128
MAX_REASON_CHARACTERS: Final = 1_024
MAX_ANSWERER_CHARACTERS: Final = 256
MAX_TOKEN_CHARACTERS: Final = 512
MAX_INTERRUPT_ID_CHARACTERS: Final = 512
MAX_TASK_ID_CHARACTERS: Final = 4_096
MAX_TEXT_BYTES: Final = 256 * 1024
MAX_FEEDBACK_BYTES: Final = 64 * 1024
MAX_METADATA_CHARACTERS: Final = 4_096
MIN_INSTANCE_TOKEN_BYTES: Final = 16
MAX_INSTANCE_TOKEN_BYTES: Final = 64


class Namespaced(Protocol):
    """A request that names a namespace, as every one does."""

    @property
    def namespace(self) -> str:
        """The namespace; empty means the default one."""
        ...


class _Paged(Protocol):
    @property
    def page_size(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What requests may hold. The meaning of each limit stands in the settings that they are taken from."""

    values: ValueLimits
    max_labels: int
    max_graph_bytes: int
    max_start_bytes: int


def namespace_of(request: Namespaced) -> str:
    """Return the namespace that a request means."""
    return request.namespace or DEFAULT_NAMESPACE


def fingerprint(request: Message) -> str:
    """Return what makes two requests with one request_id the same: everything else in them, but how they spell the namespace.

    Raises:
        CanonicalError: The request was not checked before.
    """
    bare = type(request)()
    bare.CopyFrom(request)
    bare.ClearField("request_id")
    bare.ClearField("namespace")
    return canonical.digest(bare)


class RequestChecker:
    """Checks requests of all services."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits

    def check(self, request: Message) -> None:
        """Look at everything in a request that can be wrong by itself.

        Raises:
            Refused: Something is wrong; all of it is listed.
            KeyError: The request is of a type without a rule.
        """
        findings = Findings()
        self._walk(findings).walk(request)
        RULES[request.DESCRIPTOR.name](_Check(self._limits, findings), request)
        findings.refuse_if_any()

    def check_header(self, header: value_service_pb2.WriteValueRequest.Header) -> None:
        """Look at the header of a value that is to be written.

        Raises:
            Refused: Something is wrong.
        """
        findings = Findings()
        _Check(self._limits, findings).namespace(header, "header.namespace")
        if header.HasField("value"):
            self._check_stored(header.value, findings)
        else:
            findings.add("header.value", "is missing")
        findings.refuse_if_any()

    def _check_stored(self, given: value_pb2.StoredValue, findings: Findings) -> None:
        stored = value_pb2.StoredValue()
        stored.CopyFrom(given)
        # The digest may be left out: the server computes it.
        stored.digest = stored.digest or f"{DIGEST_PREFIX}{'0' * 64}"
        found = check_value(value_pb2.Value(stored=stored), "header.value", self._limits.values)
        for violation in found:
            path = violation.path.replace(".stored", "")
            findings.report(replace(violation, path=path), {})

    def _walk(self, findings: Findings) -> ContentWalk:
        return ContentWalk(self._limits.values, findings)


class _Check:
    """The rules of single fields. Each one reports and returns nothing."""

    def __init__(self, limits: RequestLimits, findings: Findings) -> None:
        self.limits = limits
        self.findings = findings

    def namespace(self, request: Namespaced, path: str = "namespace") -> None:
        if request.namespace and not names.is_id(request.namespace):
            self.findings.add(path, f"must match {names.ID_PATTERN}, or be empty")

    def run_id(self, text: str, path: str = "run_id", *, may_be_empty: bool = False) -> None:
        if text or not may_be_empty:
            self._match(_RUN_ID, RUN_ID_PATTERN, text, path)

    def digest(self, text: str, path: str) -> None:
        if not _DIGEST.fullmatch(text):
            self.findings.add(path, "must be sha256: and 64 lower-case hex digits")

    def graph(self, text: str, path: str = "graph", *, may_be_empty: bool = False) -> None:
        if not text and may_be_empty:
            return
        if text.startswith(DIGEST_PREFIX):
            self.digest(text, path)
            return
        try:
            name = GraphReference.parse(text).name
        except ValueError as error:
            self.findings.add(path, str(error))
            return
        if not names.is_id(name):
            self.findings.add(
                path, f"must be a name that matches {names.ID_PATTERN}, name@version or sha256:…"
            )

    def name(self, text: str, path: str) -> None:
        if not names.is_id(text):
            self.findings.add(path, f"must match {names.ID_PATTERN}")

    def request_id(self, text: str) -> None:
        if len(text) > MAX_REQUEST_ID_CHARACTERS or not text.isascii() or not text.isprintable():
            self.findings.add(
                "request_id",
                f"must be at most {MAX_REQUEST_ID_CHARACTERS} printable ASCII characters",
            )

    def text(self, text: str, path: str, limit: int, *, may_be_empty: bool = True) -> None:
        if not text and not may_be_empty:
            self.findings.add(path, "is missing")
        if len(text) > limit:
            self.findings.add(path, f"has {len(text):,} characters, of at most {limit:,}")

    def labels(self, labels: Mapping[str, str], path: str) -> None:
        if len(labels) > self.limits.max_labels:
            self.findings.too_many(path, len(labels), self.limits.max_labels, "max_labels")
            return
        for name, value in labels.items():
            if not name or max(len(name), len(value)) > MAX_LABEL_CHARACTERS:
                self.findings.add(
                    f'{path}["{name[:MAX_LABEL_CHARACTERS]}"]',
                    f"a name has 1 to {MAX_LABEL_CHARACTERS} characters, a value at most as many",
                )

    def page(self, request: _Paged) -> None:
        if request.page_size < 0:
            self.findings.add("page_size", "must not be negative")

    def time_limit(self, duration: Duration, path: str) -> None:
        if duration.seconds == 0 and duration.nanos == 0:
            self.findings.add(path, "must be more than 0, or absent")

    def definition(self, graph: graph_pb2.StateGraph, path: str) -> None:
        size, limit = graph.ByteSize(), self.limits.max_graph_bytes
        if size > limit:
            self.findings.too_large(path, size, limit)

    def payload(self, violations: Iterable[Violation]) -> None:
        for violation in violations:
            self.findings.report(violation, {})

    def not_reserved(self, variables: Iterable[str], path: str) -> None:
        for name in variables:
            if names.is_reserved(name):
                self.findings.add(f"{path}.{name}", "only the server writes this variable")

    def size(self, text: str, path: str, limit_bytes: int) -> None:
        size = len(text.encode())
        if size > limit_bytes:
            self.findings.too_large(path, size, limit_bytes)

    def _match(self, pattern: re.Pattern[str], shown: str, text: str, path: str) -> None:
        if not pattern.fullmatch(text):
            self.findings.add(path, f"must match {shown}" if text else "is missing")


# ---- rules of requests -----------------------------------------------------------------------


def _register_graph(check: _Check, request: graph_service_pb2.RegisterGraphRequest) -> None:
    _validate_graph(check, request)
    check.request_id(request.request_id)
    check.definition(request.graph, "graph")


def _validate_graph(
    check: _Check,
    request: graph_service_pb2.RegisterGraphRequest | graph_service_pb2.ValidateGraphRequest,
) -> None:
    check.namespace(request)
    if not request.HasField("graph"):
        check.findings.add("graph", "is missing")


def _get_graph(check: _Check, request: graph_service_pb2.GetGraphRequest) -> None:
    check.namespace(request)
    check.graph(request.graph)


def _list_graphs(check: _Check, request: graph_service_pb2.ListGraphsRequest) -> None:
    check.namespace(request)
    check.page(request)


def _list_graph_versions(
    check: _Check, request: graph_service_pb2.ListGraphVersionsRequest
) -> None:
    check.namespace(request)
    check.name(request.name, "name")
    check.page(request)


def _render_graph(check: _Check, request: graph_service_pb2.RenderGraphRequest) -> None:
    check.namespace(request)
    check.graph(request.graph, may_be_empty=bool(request.run_id))
    check.run_id(request.run_id, may_be_empty=True)


def _start_run(check: _Check, request: run_service_pb2.StartRunRequest, prefix: str = "") -> None:
    check.namespace(request, f"{prefix}namespace")
    check.request_id(request.request_id)
    check.run_id(request.run_id, f"{prefix}run_id", may_be_empty=True)
    _graph_to_start(check, request.graph, f"{prefix}graph")
    check.labels(request.labels, f"{prefix}labels")
    check.labels(request.selector, f"{prefix}selector")
    if request.HasField("time_limit"):
        check.time_limit(request.time_limit, f"{prefix}time_limit")
    if request.HasField("delay"):
        check.findings.not_yet(f"{prefix}delay")
    if request.HasField("continue_from"):
        check.findings.not_yet(f"{prefix}continue_from")
    if request.HasField("initial_state"):
        _initial_state(check, request.initial_state, f"{prefix}initial_state")
    _input(check, request.input, f"{prefix}input")
    # Both go into one event, which must fit into a message that clients with default limits can read.
    size = request.initial_state.ByteSize() + request.input.ByteSize()
    if size > check.limits.max_start_bytes:
        check.findings.too_large(
            f"{prefix}input", size, check.limits.max_start_bytes, "Store large values first."
        )


def _graph_to_start(check: _Check, graph: graph_pb2.GraphRef, path: str) -> None:
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


def _initial_state(check: _Check, state: state_pb2.GraphState, path: str) -> None:
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


def _input(check: _Check, given: run_pb2.RunInput, path: str) -> None:
    if given.HasField("value") and given.value.WhichOneof("kind") is None:
        problem = "is set and empty; set text, json, blob, stored or secret, or leave it out"
        check.findings.add(f"{path}.value", problem, reason="UNKNOWN_VARIANT")
    _variables(check, given.variables, f"{path}.variables")
    for index, message in enumerate(given.messages):
        check.payload(check_message(message, f"{path}.messages[{index}]", check.limits.values))


def _variables(check: _Check, variables: Mapping[str, value_pb2.Value], path: str) -> None:
    check.payload(check_variables(variables, path, check.limits.values))
    check.not_reserved(variables, path)


def _start_and_watch_run(check: _Check, request: run_service_pb2.StartAndWatchRunRequest) -> None:
    _start_run(check, request.start, "start.")


def _run(
    check: _Check, request: run_service_pb2.GetRunRequest | run_service_pb2.ExplainRunRequest
) -> None:
    check.namespace(request)
    check.run_id(request.run_id)


def _filter(check: _Check, run_filter: run_service_pb2.RunFilter) -> None:
    check.graph(run_filter.graph, "filter.graph", may_be_empty=True)
    check.labels(run_filter.labels, "filter.labels")
    for index, status in enumerate(run_filter.statuses):
        if status == 0:
            check.findings.add(f"filter.statuses[{index}]", "must say a status")


def _list_runs(check: _Check, request: run_service_pb2.ListRunsRequest) -> None:
    check.namespace(request)
    _filter(check, request.filter)
    check.page(request)


def _watch_run(check: _Check, request: run_service_pb2.WatchRunRequest) -> None:
    check.namespace(request)
    check.run_id(request.run_id)
    if request.include_descendants:
        check.findings.not_yet("include_descendants")
    elif request.resume_token:
        check.findings.add("resume_token", "is only used with include_descendants")


def _watch_runs(check: _Check, request: run_service_pb2.WatchRunsRequest) -> None:
    check.namespace(request)
    _filter(check, request.filter)
    if request.filter.statuses:
        check.findings.add("filter.statuses", "would change under the watch; leave it out")


def _get_run_state(check: _Check, request: run_service_pb2.GetRunStateRequest) -> None:
    check.namespace(request)
    check.run_id(request.run_id)
    check.page(request)


def _cancel_run(check: _Check, request: run_service_pb2.CancelRunRequest) -> None:
    check.namespace(request)
    check.run_id(request.run_id)
    check.text(request.reason, "reason", MAX_REASON_CHARACTERS)
    check.request_id(request.request_id)


def _answer_interrupt(check: _Check, request: interrupt_service_pb2.AnswerInterruptRequest) -> None:
    check.namespace(request)
    check.request_id(request.request_id)
    check.text(request.answered_by, "answered_by", MAX_ANSWERER_CHARACTERS)
    match request.WhichOneof("target"):
        case "interrupt_id":
            check.text(
                request.interrupt_id,
                "interrupt_id",
                MAX_INTERRUPT_ID_CHARACTERS,
                may_be_empty=False,
            )
        case "external_token":
            check.text(
                request.external_token, "external_token", MAX_TOKEN_CHARACTERS, may_be_empty=False
            )
        case None:
            pass  # an unset oneof was reported already
    if not request.HasField("answer"):
        check.findings.add("answer", "is missing")
    answer = request.answer
    _variables(check, answer.proceed_with.variables, "answer.proceed_with.variables")
    check.size(answer.proceed_with.message, "answer.proceed_with.message", MAX_TEXT_BYTES)
    check.size(answer.revise.feedback, "answer.revise.feedback", MAX_FEEDBACK_BYTES)
    check.size(answer.abort.reason, "answer.abort.reason", MAX_FEEDBACK_BYTES)


def _get_interrupt(check: _Check, request: interrupt_service_pb2.GetInterruptRequest) -> None:
    check.namespace(request)
    check.text(
        request.interrupt_id, "interrupt_id", MAX_INTERRUPT_ID_CHARACTERS, may_be_empty=False
    )


def _list_interrupts(check: _Check, request: interrupt_service_pb2.ListInterruptsRequest) -> None:
    check.namespace(request)
    check.run_id(request.run_id, may_be_empty=True)
    check.page(request)


def _read_task_input(check: _Check, request: executor_service_pb2.ReadTaskInputRequest) -> None:
    check.namespace(request)
    check.text(
        request.attempt.task_id, "attempt.task_id", MAX_TASK_ID_CHARACTERS, may_be_empty=False
    )
    if not request.attempt.attempt:
        check.findings.add("attempt.attempt", "is missing")
    size = len(request.instance_token)
    if not MIN_INSTANCE_TOKEN_BYTES <= size <= MAX_INSTANCE_TOKEN_BYTES:
        check.findings.add(
            "instance_token",
            f"must have {MIN_INSTANCE_TOKEN_BYTES} to {MAX_INSTANCE_TOKEN_BYTES} bytes",
        )


def _list_executors(check: _Check, request: executor_service_pb2.ListExecutorsRequest) -> None:
    check.namespace(request)
    check.page(request)


def _read_value(check: _Check, request: value_service_pb2.ReadValueRequest) -> None:
    check.namespace(request)
    check.digest(request.digest, "digest")


def _rule(rule: Callable[..., None]) -> Callable[[_Check, Message], None]:
    # The table pairs each type with its rule; no checker can see that.
    return cast("Callable[[_Check, Message], None]", rule)


#: By the name of the request type. Requests of RPCs that are not supported yet, and the parts of
#: client streams, are not looked at here.
RULES: Final[Mapping[str, Callable[[_Check, Message], None]]] = {
    "RegisterGraphRequest": _rule(_register_graph),
    "ValidateGraphRequest": _rule(_validate_graph),
    "GetGraphRequest": _rule(_get_graph),
    "ListGraphsRequest": _rule(_list_graphs),
    "ListGraphVersionsRequest": _rule(_list_graph_versions),
    "RenderGraphRequest": _rule(_render_graph),
    "StartRunRequest": _rule(_start_run),
    "StartAndWatchRunRequest": _rule(_start_and_watch_run),
    "GetRunRequest": _rule(_run),
    "ListRunsRequest": _rule(_list_runs),
    "WatchRunRequest": _rule(_watch_run),
    "WatchRunsRequest": _rule(_watch_runs),
    "GetRunStateRequest": _rule(_get_run_state),
    "CancelRunRequest": _rule(_cancel_run),
    "AnswerInterruptRequest": _rule(_answer_interrupt),
    "GetInterruptRequest": _rule(_get_interrupt),
    "ListInterruptsRequest": _rule(_list_interrupts),
    "ReadTaskInputRequest": _rule(_read_task_input),
    "ListExecutorsRequest": _rule(_list_executors),
    "ReadValueRequest": _rule(_read_value),
}
