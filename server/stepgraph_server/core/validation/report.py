"""Where the checks write down what they find.

Rules: checks never raise and never stop at the first fault; they add to a report. Whatever a graph brings is shown cut, so
that the report of a hostile graph stays small.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.errors import Problem
from stepgraph_server.core.names import did_you_mean
from stepgraph_server.core.validation.codes import ProblemCode

if TYPE_CHECKING:
    from collections.abc import Collection

    from stepgraph_server.core.validation.codes import WarningCode

MAX_LISTED: Final = 1_000
"""Of problems, and of warnings: more are of no use to anybody, and an answer has to stay below 3 MiB."""
MAX_HINTS: Final = 100
"""Finding the closest of 2,000 names takes milliseconds, so only so many problems get one."""
_MAX_SHOWN: Final = 80
_MAX_MESSAGE: Final = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found.

    Attributes:
        problems: What must be mended, in the order of the definition's fields within each check.
        warnings: What is legal but odd.
    """

    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


class Report:
    """Collects problems and warnings."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._warnings: list[Problem] = []
        self._problem_count = 0
        self._hints_left = MAX_HINTS

    def problem(self, code: ProblemCode, path: str, message: str, hint: str = "") -> None:
        """Add what must be mended."""
        self._problem_count += 1
        if len(self._problems) < MAX_LISTED:
            self._problems.append(_entry(code, path, message, hint))

    def warning(self, code: WarningCode, path: str, message: str, hint: str = "") -> None:
        """Add what is odd."""
        if len(self._warnings) < MAX_LISTED:
            self._warnings.append(_entry(code, path, message, hint))

    def closest(self, name: str, known: Collection[str]) -> str:
        """Return a hint with names like this one; empty once enough hints were given."""
        if self._hints_left == 0:
            return ""
        self._hints_left -= 1
        return did_you_mean(name, known)

    def findings(self) -> Findings:
        """Return what was found so far."""
        problems = list(self._problems)
        if self._problem_count > len(problems):
            message = f"{self._problem_count - len(problems)} more problems are not listed"
            problems.append(_entry(ProblemCode.TOO_MANY_PROBLEMS, "", message, "Mend these first."))
        return Findings(problems=tuple(problems), warnings=tuple(self._warnings))


def shown(text: str) -> str:
    """Return a text of the graph's for a message: quoted, and cut if it is long."""
    return json.dumps(
        text[:_MAX_SHOWN] + ("…" if len(text) > _MAX_SHOWN else ""), ensure_ascii=False
    )


def at_key(path: str, key: str) -> str:
    """Return the path of a map's entry, such as `paradigms["plan"]`."""
    return f"{path}[{shown(key)}]"


def _entry(code: str, path: str, message: str, hint: str) -> Problem:
    cut = message if len(message) <= _MAX_MESSAGE else message[:_MAX_MESSAGE] + "…"
    return Problem(code=str(code), path=path, message=cut, hint=hint)
