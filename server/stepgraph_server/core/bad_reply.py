"""What is wrong with a step program's reply, while it is being checked.

Rules: the first fault ends the check; the path is that of the field in StepReply, so that whoever wrote the program finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_server.core.errors import Violation


class BadReply(Exception):  # named for what it is; it never leaves the checks of replies
    """A reply that can't be recorded: where, why, and the code of the failure that it becomes."""

    def __init__(self, *, path: str, message: str, code: str = "STEP_REPLY_INVALID") -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message
        self.code = code


def refuse_violations(violations: Sequence[Violation]) -> None:
    """Raise BadReply for the first of these, if there is one."""
    if not violations:
        return
    first = violations[0]
    too_large = first.reason == "PAYLOAD_TOO_LARGE"
    code = "PAYLOAD_TOO_LARGE" if too_large else "STEP_REPLY_INVALID"
    raise BadReply(path=first.path, message=first.message, code=code)


__all__ = ["BadReply", "refuse_violations"]
