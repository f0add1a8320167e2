"""The exceptions of the server: one root, and one class per decision that a caller can take.

Rules: exceptions carry fields, and their message is made of the same fields; reasons are names of
`stepgraph.v1.ErrorReason` without the prefix. How a reason becomes a gRPC status is written in one
table, in `api/errors.py`, and nowhere else. A run that goes wrong is data (`Failure`), not an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph_server.core.instants import Span


class StepgraphError(Exception):
    """The root of all exceptions that the server raises on purpose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A field that is wrong: where, what was expected, and what to do."""

    path: str
    message: str
    reason: str = "INVALID_REQUEST"


class Refused(StepgraphError):
    """A request that is not carried out. Expected; the caller can mend it, and nothing was changed.

    `reason` is a name of ErrorReason without its prefix, `message` is for people, `metadata` has every variable
    of the message, `violations` name the fields, `retry_after` says when the same may be tried again.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[Violation] = (),
        retry_after: Span | None = None,
    ) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after = retry_after


class Quarantined(StepgraphError):
    """A run whose journal can't be folded any further. Unexpected: a fault, or a newer server wrote it.

    `last_sequence` is the last event that could be read; `cause_text` says what stopped it.
    """

    def __init__(self, run_id: str, last_sequence: int, cause_text: str) -> None:
        super().__init__(f"run {run_id} can't be read beyond event {last_sequence}: {cause_text}")
        self.run_id = run_id
        self.last_sequence = last_sequence
        self.cause_text = cause_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is wrong, or odd, about a graph; see GraphProblem in the schema."""

    code: str
    path: str
    message: str
    hint: str = ""


class GraphInvalid(StepgraphError):
    """A graph that can't be compiled. Expected; `problems` lists everything that must be mended."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        first = problems[0]
        super().__init__(f"{len(problems)} problem(s), the first at {first.path}: {first.message}")
        self.problems = tuple(problems)


__all__ = ["GraphInvalid", "Problem", "Quarantined", "Refused", "StepgraphError", "Violation"]
