"""Single fields of requests, by shape. Rules: each one reports, everything at once, and returns nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from stepgraph_server.core import names
from stepgraph_server.core.values import check_variables
from stepgraph_server.storage.graphs import DIGEST_PREFIX, GraphReference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.message import Message

    from stepgraph.v1 import graph_pb2, value_pb2
    from stepgraph_server.api.findings import Findings
    from stepgraph_server.core.errors import Violation
    from stepgraph_server.core.values import ValueLimits

RUN_ID_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_RUN_ID: Final = re.compile(RUN_ID_PATTERN)
MAX_REQUEST_ID_CHARACTERS: Final = 64
MAX_LABEL_CHARACTERS: Final = 128


class Namespaced(Protocol):
    """A request that names a namespace, as every one does."""

    @property
    def namespace(self) -> str:
        """The namespace; empty means the default one."""
        ...


class Paged(Protocol):
    """A request for a page of a list."""

    @property
    def page_size(self) -> int:
        """The most entries; 0 means the server's own number."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What requests may hold. The meaning of each limit stands in the settings that they are taken from."""

    values: ValueLimits
    max_labels: int
    max_graph_bytes: int
    max_start_bytes: int


class FieldCheck:
    """The rules of single fields. Each one reports and returns nothing."""

    def __init__(self, limits: RequestLimits, findings: Findings) -> None:
        """It is an id, or empty."""
        self.limits = limits
        self.findings = findings

    def namespace(self, request: Namespaced, path: str = "namespace") -> None:
        """It is an id, or empty."""
        if request.namespace and not names.is_id(request.namespace):
            self.findings.add(path, f"must match {names.ID_PATTERN}, or be empty")

    def run_id(self, text: str, path: str = "run_id", *, may_be_empty: bool = False) -> None:
        """It is the id of a run."""
        if text or not may_be_empty:
            self._match(_RUN_ID, RUN_ID_PATTERN, text, path)

    def digest(self, text: str, path: str) -> None:
        """It is a digest."""
        if not _DIGEST.fullmatch(text):
            self.findings.add(path, "must be sha256: and 64 lower-case hex digits")

    def graph(self, text: str, path: str = "graph", *, may_be_empty: bool = False) -> None:
        """It is a name, a version of one, or a digest."""
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
        """It is an id."""
        if not names.is_id(text):
            self.findings.add(path, f"must match {names.ID_PATTERN}")

    def request_id(self, text: str) -> None:
        """It is short and printable."""
        if len(text) > MAX_REQUEST_ID_CHARACTERS or not text.isascii() or not text.isprintable():
            self.findings.add(
                "request_id",
                f"must be at most {MAX_REQUEST_ID_CHARACTERS} printable ASCII characters",
            )

    def text(self, text: str, path: str, limit: int, *, may_be_empty: bool = True) -> None:
        """It is not too long."""
        if not text and not may_be_empty:
            self.findings.add(path, "is missing")
        if len(text) > limit:
            self.findings.add(path, f"has {len(text):,} characters, of at most {limit:,}")

    def labels(self, labels: Mapping[str, str], path: str) -> None:
        """They are not too many, and none is too long."""
        if len(labels) > self.limits.max_labels:
            self.findings.too_many(path, len(labels), self.limits.max_labels, "max_labels")
            return
        for name, value in labels.items():
            if not name or max(len(name), len(value)) > MAX_LABEL_CHARACTERS:
                self.findings.add(
                    f'{path}["{name[:MAX_LABEL_CHARACTERS]}"]',
                    f"a name has 1 to {MAX_LABEL_CHARACTERS} characters, a value at most as many",
                )

    def page(self, request: Paged) -> None:
        """The size is none that makes no sense."""
        if request.page_size < 0:
            self.findings.add("page_size", "must not be negative")

    def time_limit(self, duration: Duration, path: str) -> None:
        """It is more than nothing."""
        if duration.seconds == 0 and duration.nanos == 0:
            self.findings.add(path, "must be more than 0, or absent")

    def variables(self, variables: Mapping[str, value_pb2.Value], path: str) -> None:
        """They can be stored, and are none of the server's."""
        self.payload(check_variables(variables, path, self.limits.values))
        self.not_reserved(variables, path)

    def definition(self, graph: graph_pb2.StateGraph, path: str) -> None:
        """It is not too large."""
        size, limit = graph.ByteSize(), self.limits.max_graph_bytes
        if size > limit:
            self.findings.too_large(path, size, limit)

    def payload(self, violations: Iterable[Violation]) -> None:
        """Nothing was found in it."""
        for violation in violations:
            self.findings.report(violation, {})

    def not_reserved(self, variables: Iterable[str], path: str) -> None:
        """None of them is the server's to write."""
        for name in variables:
            if names.is_reserved(name):
                self.findings.add(f"{path}.{name}", "only the server writes this variable")

    def size(self, text: str, path: str, limit_bytes: int) -> None:
        """It is not too large in bytes."""
        size = len(text.encode())
        if size > limit_bytes:
            self.findings.too_large(path, size, limit_bytes)

    def _match(self, pattern: re.Pattern[str], shown: str, text: str, path: str) -> None:
        if not pattern.fullmatch(text):
            self.findings.add(path, f"must match {shown}" if text else "is missing")


Rule: TypeAlias = "Callable[[FieldCheck, Message], None]"


def rule(check: Callable[..., None]) -> Rule:
    """Return the rule of one type of request for a table of rules of all: the table pairs them, no type checker can."""
    return cast("Rule", check)
