"""Requests by shape: what may be said, before anyone looks whether it is true.

Rules: everything that can be wrong with a request by itself is found here, all of it at once, before a servicer sees it, and a
servicer may rely on it. Each request type of each service has a rule in the table, so a new RPC can't forget to have one.
What needs the store, or the rules of graphs and runs, is none of this file's business.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import value_pb2
from stepgraph_server.api.contents import ContentWalk
from stepgraph_server.api.fields import FieldCheck, Namespaced, RequestLimits, Rule, rule
from stepgraph_server.api.findings import Findings
from stepgraph_server.api.run_rules import RUN_RULES
from stepgraph_server.core import canonical
from stepgraph_server.core.values import check_value
from stepgraph_server.storage.graphs import DIGEST_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from google.protobuf.message import Message

    from stepgraph.v1 import (
        executor_service_pb2,
        graph_service_pb2,
        interrupt_service_pb2,
        value_service_pb2,
    )

DEFAULT_NAMESPACE: Final = "default"
MAX_ANSWERER_CHARACTERS: Final = 256
MAX_TOKEN_CHARACTERS: Final = 512
MAX_INTERRUPT_ID_CHARACTERS: Final = 512
MAX_TASK_ID_CHARACTERS: Final = 4_096
MAX_TEXT_BYTES: Final = 256 * 1024
MAX_FEEDBACK_BYTES: Final = 64 * 1024
MIN_INSTANCE_TOKEN_BYTES: Final = 16
MAX_INSTANCE_TOKEN_BYTES: Final = 64


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
        RULES[request.DESCRIPTOR.name](FieldCheck(self._limits, findings), request)
        findings.refuse_if_any()

    def check_header(self, header: value_service_pb2.WriteValueRequest.Header) -> None:
        """Look at the header of a value that is to be written.

        Raises:
            Refused: Something is wrong.
        """
        findings = Findings()
        FieldCheck(self._limits, findings).namespace(header, "header.namespace")
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


# ---- rules of requests -----------------------------------------------------------------------


def _register_graph(check: FieldCheck, request: graph_service_pb2.RegisterGraphRequest) -> None:
    _validate_graph(check, request)
    check.request_id(request.request_id)
    check.definition(request.graph, "graph")


def _validate_graph(
    check: FieldCheck,
    request: graph_service_pb2.RegisterGraphRequest | graph_service_pb2.ValidateGraphRequest,
) -> None:
    check.namespace(request)
    if not request.HasField("graph"):
        check.findings.add("graph", "is missing")


def _get_graph(check: FieldCheck, request: graph_service_pb2.GetGraphRequest) -> None:
    check.namespace(request)
    check.graph(request.graph)


def _list_graphs(check: FieldCheck, request: graph_service_pb2.ListGraphsRequest) -> None:
    check.namespace(request)
    check.page(request)


def _list_graph_versions(
    check: FieldCheck, request: graph_service_pb2.ListGraphVersionsRequest
) -> None:
    check.namespace(request)
    check.name(request.name, "name")
    check.page(request)


def _render_graph(check: FieldCheck, request: graph_service_pb2.RenderGraphRequest) -> None:
    check.namespace(request)
    check.graph(request.graph, may_be_empty=bool(request.run_id))
    check.run_id(request.run_id, may_be_empty=True)


def _answer_interrupt(
    check: FieldCheck, request: interrupt_service_pb2.AnswerInterruptRequest
) -> None:
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
    check.variables(answer.proceed_with.variables, "answer.proceed_with.variables")
    check.size(answer.proceed_with.message, "answer.proceed_with.message", MAX_TEXT_BYTES)
    check.size(answer.revise.feedback, "answer.revise.feedback", MAX_FEEDBACK_BYTES)
    check.size(answer.abort.reason, "answer.abort.reason", MAX_FEEDBACK_BYTES)


def _get_interrupt(check: FieldCheck, request: interrupt_service_pb2.GetInterruptRequest) -> None:
    check.namespace(request)
    check.text(
        request.interrupt_id, "interrupt_id", MAX_INTERRUPT_ID_CHARACTERS, may_be_empty=False
    )


def _list_interrupts(
    check: FieldCheck, request: interrupt_service_pb2.ListInterruptsRequest
) -> None:
    check.namespace(request)
    check.run_id(request.run_id, may_be_empty=True)
    check.page(request)


def _read_task_input(check: FieldCheck, request: executor_service_pb2.ReadTaskInputRequest) -> None:
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


def _list_executors(check: FieldCheck, request: executor_service_pb2.ListExecutorsRequest) -> None:
    check.namespace(request)
    check.page(request)


def _read_value(check: FieldCheck, request: value_service_pb2.ReadValueRequest) -> None:
    check.namespace(request)
    check.digest(request.digest, "digest")


#: By the name of the request type. Requests of RPCs that are not supported yet, and the parts of
#: client streams, are not looked at here.
RULES: Final[Mapping[str, Rule]] = {
    "RegisterGraphRequest": rule(_register_graph),
    "ValidateGraphRequest": rule(_validate_graph),
    "GetGraphRequest": rule(_get_graph),
    "ListGraphsRequest": rule(_list_graphs),
    "ListGraphVersionsRequest": rule(_list_graph_versions),
    "RenderGraphRequest": rule(_render_graph),
    **RUN_RULES,
    "AnswerInterruptRequest": rule(_answer_interrupt),
    "GetInterruptRequest": rule(_get_interrupt),
    "ListInterruptsRequest": rule(_list_interrupts),
    "ReadTaskInputRequest": rule(_read_task_input),
    "ListExecutorsRequest": rule(_list_executors),
    "ReadValueRequest": rule(_read_value),
}
