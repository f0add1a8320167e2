"""What the rule planner does in the third act: plan a survey of a folder, plan again, and report.

Rules: everything it knows is in the last message, in lines `name: JSON`; it keeps nothing in between. A plan is the folder
to survey next and those after it. A folder that turns out to be most of what there is is opened, and its parts are
planned with the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, TypeAdapter

from examples.demo.findings import FolderSize, Measured, Survey

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How the messages begin that the planner is to answer in this way.
BEGINNING = "measured: "
#: A folder with more than this share of all lines is opened.
OPENED = 0.3
#: Seen enough once the surveyed folders have this share of all lines, opened ones by their parts.
ENOUGH = 0.8
#: More surveys than anybody reads.
MAX_SURVEYS = 12
MAX_KINDS = 4
_SURVEYS = TypeAdapter(list[Survey])
_LATER = TypeAdapter(list[str])


class Plan(BaseModel):
    """The folder to survey next, or nothing; those after it; and why."""

    next: str
    later: list[str]
    why: str


class Known(BaseModel):
    """What a message tells."""

    measured: Measured
    later: list[str]
    surveys: list[Survey]

    @classmethod
    def read(cls, message: str) -> Known:
        """Read a message. Raises ValueError if it does not tell what a planner needs."""
        lines = dict(line.split(": ", 1) for line in message.splitlines() if ": " in line)
        return cls(
            measured=Measured.model_validate_json(lines.get("measured", "")),
            later=_LATER.validate_json(lines.get("later") or "[]"),
            surveys=read_all(lines.get("surveys") or "[]"),
        )


def read_all(text: str) -> list[Survey]:
    """Read a list of surveys. Raises ValueError if it is none."""
    return _SURVEYS.validate_json(text)


def plan(known: Known) -> Plan:
    """Plan the survey; what was found last may change what comes next."""
    total = known.measured.whole.lines
    if not known.surveys:
        later = _by_size(known.measured.parts)
        why = f"{len(later)} folders, the one with the most lines first"
        return _take(later, why if later else "there are no folders in it")
    if len(known.surveys) >= MAX_SURVEYS:
        return Plan(next="", later=known.later, why=f"{MAX_SURVEYS} surveys are enough for anybody")
    last = known.surveys[-1]
    if last.measured.parts and last.folder.lines > OPENED * total:
        share = _share(last.folder.lines, total)
        why = f"{last.folder.path} has {share} of all lines, so its parts are surveyed as well"
        wanted = {*known.later, *(each.path for each in last.measured.parts)}
        return _take([each for each in _by_size(_sizes(known)) if each in wanted], why)
    return _take(known.later, "as planned")


def _sizes(known: Known) -> list[FolderSize]:
    return [
        *known.measured.parts,
        *(part for each in known.surveys for part in each.measured.parts),
    ]


def seen_lines(surveys: Iterable[Survey], total: int) -> int:
    """Return how many lines the surveys cover. What was opened counts by its parts."""
    sizes = {each.folder.path: each for each in surveys}
    closed = [
        each.folder
        for each in sizes.values()
        if not each.measured.parts or each.folder.lines <= OPENED * total
    ]
    return sum(each.lines for each in closed if not _is_inside(each, closed))


def has_seen_enough(measured: Measured, surveys: Iterable[Survey]) -> bool:
    """Whether most of the folder has been surveyed."""
    return seen_lines(surveys, measured.whole.lines) >= ENOUGH * measured.whole.lines


def report(known: Known) -> str:
    """Say what the surveys found."""
    whole = known.measured.whole
    seen = seen_lines(known.surveys, whole.lines)
    head = (
        f"{whole.files:,} files with {whole.lines:,} lines; {_share(seen, whole.lines)} of the lines were surveyed, "
        f"in {len(known.surveys)} folders:"
    )
    left = [f"Left out: {', '.join(known.later)}."] if known.later else []
    return "\n".join([head, *(_line(each, whole.lines) for each in known.surveys), *left])


def _line(survey: Survey, total: int) -> str:
    kinds = ", ".join(
        f"{count} {kind}" for kind, count in [*survey.measured.kinds.items()][:MAX_KINDS]
    )
    said = [f"- {survey.folder.path}: {_share(survey.folder.lines, total)} of the lines; {kinds}"]
    longest = survey.measured.longest
    if longest is not None:
        said.append(f"; the longest file is {longest.path} ({longest.lines:,} lines)")
    if survey.introduction:
        quote = " ".join(survey.introduction)
        said.append(
            f'\n    "{quote[:180]}{"…" if len(quote) > 180 else ""}"  ({survey.introduced_by})'
        )
    return "".join(said)


def _take(folders: list[str], why: str) -> Plan:
    return Plan(next=folders[0] if folders else "", later=folders[1:], why=why)


def _by_size(parts: Iterable[FolderSize]) -> list[str]:
    return [
        each.path for each in sorted(parts, key=lambda each: (-each.lines, each.path)) if each.lines
    ]


def _is_inside(folder: FolderSize, others: Iterable[FolderSize]) -> bool:
    return any(folder.path.startswith(f"{each.path}/") for each in others)


def _share(lines: int, total: int) -> str:
    return f"{lines / total:.0%}" if total else "0%"
