"""The rule planner's other job: it reads a wish for a change, and calls the tool that proposes it.

It understands `replace 'a' with 'b' in notes.md`, and in a later message what is to be different: `with 'c'`, `in other.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_QUOTED = r"[`'\"](?P<text>[^`'\"]*)[`'\"]"
_FIND = re.compile(rf"\breplace\s+{_QUOTED}", re.IGNORECASE)
_WITH = re.compile(rf"\b(?:with|by)\s+{_QUOTED}", re.IGNORECASE)
_FILE = re.compile(r"\bin\s+[`'\"]?(?P<text>[\w./-]*\w)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Wish:
    """A change as far as it is known; None is what nobody has said yet."""

    file: str | None = None
    find: str | None = None
    replace: str | None = None


def wish(texts: Iterable[str]) -> Wish:
    """Return the change that messages ask for, oldest first; each may correct the ones before."""
    known = Wish()
    for text in texts:
        known = Wish(
            file=_said(_FILE, text, known.file),
            find=_said(_FIND, text, known.find),
            replace=_said(_WITH, text, known.replace),
        )
    return known


def missing(known: Wish) -> str:
    """Return what to say about a change that is not known yet; empty if everything is."""
    parts = {"which file": known.file, "what to replace": known.find, "with what": known.replace}
    unknown = [what for what, said in parts.items() if said is None]
    if not unknown:
        return ""
    return f"I don't know {', '.join(unknown)}. Write: replace 'this' with 'that' in notes.md"


def _said(pattern: re.Pattern[str], text: str, before: str | None) -> str | None:
    found = pattern.search(text)
    return found.group("text") if found else before
