"""How what an executor sent is refused: one exception, with the field and the reason."""

from __future__ import annotations

from typing import NoReturn

from stepgraph_server.core.errors import StepgraphError, Violation


class ViolationError(StepgraphError):
    """Something that an executor sent can't be taken. Expected; the executor's fault.

    `violation` names the field, the reason and what was expected; a reject frame has the same.
    """

    def __init__(self, violation: Violation) -> None:
        super().__init__(f"{violation.path}: {violation.message}")
        self.violation = violation


def refuse(path: str, message: str, reason: str = "INVALID_REQUEST") -> NoReturn:
    """Raise a ViolationError."""
    raise ViolationError(Violation(path=path, message=message, reason=reason))
