"""How what goes wrong becomes a gRPC status: the one table of reasons and codes.

Rules: every status that we return carries exactly one google.rpc.ErrorInfo, and everything that a client must hold in its
trailers stays below 4 KiB, since clients give up on larger ones. What is unexpected becomes INTERNAL with an incident id: its
text may hold payloads or paths, so it goes to the log and never to the caller.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from stepgraph_server.core.errors import GraphInvalid, Quarantined, Refused, Violation
from stepgraph_server.core.instants import SECOND, Span, to_duration
from stepgraph_server.storage import errors as storage_errors
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.message import Message

DOMAIN: Final = "stepgraph"
DETAILS_KEY: Final = "grpc-status-details-bin"

MAX_DETAILS_BYTES: Final = 2_400
"""Serialized details. They travel in base64, a third larger; with the message they stay below 4 KiB."""

MAX_MESSAGE_BYTES: Final = 500
"""A message as it travels in a header, where each byte outside printable ASCII takes three."""

MAX_METADATA_BYTES: Final = 1_000
"""The values of an ErrorInfo together."""

MAX_ENTRY_BYTES: Final = 200
MAX_ENTRIES: Final = 8
MAX_DESCRIPTION_BYTES: Final = 300

DEFAULT_RETRY_AFTER: Final = SECOND
"""For reasons that say "later" where nobody knows when."""

_INVALID: Final = grpc.StatusCode.INVALID_ARGUMENT
_PRECONDITION: Final = grpc.StatusCode.FAILED_PRECONDITION

CODES: Final[Mapping[str, grpc.StatusCode]] = {
    "INVALID_REQUEST": _INVALID,
    "UNKNOWN_VARIANT": _INVALID,
    "GRAPH_INVALID": _INVALID,
    "JSON_INVALID": _INVALID,
    "PAGE_TOKEN_INVALID": _INVALID,
    "RESUME_TOKEN_INVALID": _INVALID,
    "ANSWER_INVALID": _INVALID,
    "HELLO_INVALID": _INVALID,
    "PAYLOAD_TOO_LARGE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "LIMIT_EXCEEDED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "OVERLOADED": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "RUN_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "RUN_DELETED": grpc.StatusCode.NOT_FOUND,
    "GRAPH_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "INTERRUPT_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "VALUE_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "TASK_NOT_FOUND": grpc.StatusCode.NOT_FOUND,
    "RUN_EXISTS": grpc.StatusCode.ALREADY_EXISTS,
    "REQUEST_ID_REUSED": _PRECONDITION,
    "RUN_ENDED": _PRECONDITION,
    "RUN_NOT_ENDED": _PRECONDITION,
    "INTERRUPT_ANSWERED": _PRECONDITION,
    "INTERRUPT_CLOSED": _PRECONDITION,
    "GRAPH_MISMATCH": _PRECONDITION,
    "RESULT_INVALID": _PRECONDITION,
    "SEQUENCE_OUT_OF_RANGE": grpc.StatusCode.OUT_OF_RANGE,
    "RUN_QUARANTINED": grpc.StatusCode.DATA_LOSS,
    "NOT_YET_SUPPORTED": grpc.StatusCode.UNIMPLEMENTED,
    "METHOD_NOT_FOUND": grpc.StatusCode.UNIMPLEMENTED,
    "SHUTTING_DOWN": grpc.StatusCode.UNAVAILABLE,
    "JOURNAL_UNAVAILABLE": grpc.StatusCode.UNAVAILABLE,
    "INTERNAL": grpc.StatusCode.INTERNAL,
    "SESSION_SUPERSEDED": grpc.StatusCode.ABORTED,
    "SESSION_SILENT": grpc.StatusCode.DEADLINE_EXCEEDED,
    "UNAUTHENTICATED": grpc.StatusCode.UNAUTHENTICATED,
    "FORBIDDEN": grpc.StatusCode.PERMISSION_DENIED,
}

_PRINTABLE: Final = " !\"#$&'()*+,/:;<=>?@[\\]^`{|}~"

#: Reasons whose remedy is to send the same again later; their statuses always say when.
RETRIED_LATER: Final = frozenset({"SHUTTING_DOWN", "JOURNAL_UNAVAILABLE", "OVERLOADED"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcStatus:
    """A status as grpc wants it."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, str | bytes], ...]


def refusal_of(error: Exception) -> Refused | None:
    """Return an expected error as a refusal; None if it was not expected."""
    match error:
        case Refused():
            return error
        case GraphInvalid():
            return _refuse_graph(error)
        case Quarantined():
            return Refused(
                "RUN_QUARANTINED",
                f"the journal of run {error.run_id} can't be read beyond event {error.last_sequence}",
                metadata={"run_id": error.run_id, "last_sequence": str(error.last_sequence)},
            )
        case storage_errors.StorageError():
            return _refuse_storage(error)
        case _:
            return None


def _refuse_graph(error: GraphInvalid) -> Refused:
    codes = {problem.code for problem in error.problems}
    # A graph that only another server can take is not broken.
    if codes == {"NOT_YET_SUPPORTED"}:
        reason, metadata = "NOT_YET_SUPPORTED", {"field": error.problems[0].path}
    elif codes <= {"UNKNOWN_VARIANT", "UNKNOWN_FIELD"}:
        reason, metadata = "UNKNOWN_VARIANT", {"field": error.problems[0].path}
    else:
        reason, metadata = "GRAPH_INVALID", {"problems": str(len(error.problems))}
    violations = [
        Violation(
            path=problem.path,
            message=f"{problem.message} {problem.hint}".rstrip(),
            reason=problem.code,
        )
        for problem in error.problems
    ]
    return Refused(reason, str(error), metadata=metadata, violations=violations)


def _refuse_storage(error: storage_errors.StorageError) -> Refused | None:
    match error:
        case storage_errors.JournalUnavailable():
            return Refused(
                "JOURNAL_UNAVAILABLE",
                "the journal can't be written now; try again, with the same request_id",
            )
        case storage_errors.RunExists():
            return Refused(
                "RUN_EXISTS",
                f"run {error.key.run_id} exists; choose another id, or none",
                metadata={"run_id": error.key.run_id},
            )
        case storage_errors.ValueMismatch():
            return Refused(
                "INVALID_REQUEST",
                str(error),
                violations=[Violation(path="header.value", message=str(error))],
            )
        case storage_errors.ValueTooLarge():
            return too_large(
                "header.value", limit_bytes=error.limit_bytes, size_bytes=error.size_bytes
            )
        case _:
            return None  # the caller of the store was to handle it


def too_large(field: str, *, limit_bytes: int, size_bytes: int) -> Refused:
    """Return the refusal of something that is larger than it may be."""
    metadata = {
        "field": field,
        "limit_bytes": str(limit_bytes),
        "size_bytes": str(size_bytes),
    }
    message = f"{field}: has {size_bytes:,} bytes, of at most {limit_bytes:,}"
    return Refused("PAYLOAD_TOO_LARGE", message, metadata=metadata)


class StatusMaker:
    """Makes statuses of errors, and writes those that were not expected to the log."""

    def __init__(
        self, logger: logging.Logger, new_incident_id: Callable[[], str] | None = None
    ) -> None:
        self._logger = logger
        self._new_incident_id = new_incident_id or (lambda: secrets.token_hex(8))

    def status_of(self, error: Exception, method: str) -> RpcStatus:
        """Return the status for an error that a call of `method` ended with."""
        refused = refusal_of(error)
        if refused is None:
            return self._fault(error, method)
        if refused.reason not in CODES:
            # Whoever refused it invented a reason that the schema does not have.
            return self._fault(refused, method)
        self._logger.debug(
            "Call was refused",
            extra={"action": names.CALL_REFUSED, "method": method, "reason": refused.reason},
        )
        return status_of_refusal(refused)

    def _fault(self, error: Exception, method: str) -> RpcStatus:
        incident_id = self._new_incident_id()
        self._logger.error(
            "Call ended with a fault of the server",
            exc_info=error,
            extra={
                "action": names.CALL_FAULT,
                "method": method,
                "incident_id": incident_id,
            },
        )
        return status_of_refusal(
            Refused(
                "INTERNAL",
                f"a fault of the server; its log has more under incident {incident_id}",
                metadata={"incident_id": incident_id},
            )
        )


def status_of_refusal(refused: Refused) -> RpcStatus:
    """Return the status of a refusal, cut to what trailers may hold."""
    code = CODES[refused.reason]
    message = _fit_message(refused.message)
    status = status_pb2.Status(code=code.value[0], message=message)
    _pack(status, _error_info(refused))
    retry_after = refused.retry_after
    if retry_after is None and refused.reason in RETRIED_LATER:
        retry_after = DEFAULT_RETRY_AFTER
    if retry_after is not None:
        _pack(status, error_details_pb2.RetryInfo(retry_delay=to_duration(Span(retry_after))))
    if refused.violations:
        # Last, with whatever room is left: the others are small and each of them matters.
        room = MAX_DETAILS_BYTES - status.ByteSize()
        _pack(status, _bad_request(refused.violations, room))
    return RpcStatus(
        code=code, message=message, trailers=((DETAILS_KEY, status.SerializeToString()),)
    )


def _pack(status: status_pb2.Status, detail: Message) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)
    status.details.append(packed)


def _error_info(refused: Refused) -> error_details_pb2.ErrorInfo:
    metadata = dict(refused.metadata)
    if refused.violations and refused.reason != "GRAPH_INVALID":
        metadata.setdefault("field", refused.violations[0].path)
    entries = list(metadata.items())[:MAX_ENTRIES]
    limit = min(MAX_ENTRY_BYTES, MAX_METADATA_BYTES // max(1, len(entries)))
    return error_details_pb2.ErrorInfo(
        reason=refused.reason,
        domain=DOMAIN,
        metadata={key: _cut(value, limit) for key, value in entries},
    )


def _bad_request(violations: Sequence[Violation], room: int) -> error_details_pb2.BadRequest:
    """Return as many violations as fit, and at the end how many there are more."""
    bad_request = error_details_pb2.BadRequest()
    # What packing, and the line that counts the rest, take at most.
    room -= 150
    for index, violation in enumerate(violations):
        entry = error_details_pb2.BadRequest.FieldViolation(
            field=_cut(violation.path, MAX_ENTRY_BYTES),
            description=_cut(violation.message, MAX_DESCRIPTION_BYTES),
            reason=violation.reason,
        )
        size = entry.ByteSize() + 4
        if size > room:
            rest = len(violations) - index
            bad_request.field_violations.add(description=f"and {rest} more")
            break
        room -= size
        bad_request.field_violations.append(entry)
    return bad_request


def _fit_message(text: str) -> str:
    """Cut a message by what it takes in a header."""
    message = _cut(text, MAX_MESSAGE_BYTES)
    while len(quote(message, safe=_PRINTABLE)) > MAX_MESSAGE_BYTES:
        message = _cut(message, len(message.encode()) * 3 // 4)
    return message


def _cut(text: str, limit_bytes: int) -> str:
    """Cut a text that has more bytes, and show that it was cut."""
    content = text.encode()
    if len(content) <= limit_bytes:
        return text
    # "ignore" drops the half of a character that the cut may leave at the end.
    return content[: limit_bytes - 3].decode(errors="ignore") + "…"
