"""The codes of problems and warnings, and their documentation."""

from __future__ import annotations

import re
from pathlib import Path

from stepgraph_server.core.validation.codes import ProblemCode, WarningCode

README = Path(__file__).resolve().parents[5] / "protos" / "README.md"


def documented(title: str) -> list[str]:
    section = README.read_text().partition(f"### {title}\n")[2].partition("\n#")[0]
    return re.findall(r"^\| `([A-Z_]+)` \|", section, re.MULTILINE)


def test_every_problem_code_is_documented_and_the_reverse() -> None:
    assert sorted(documented("Problems")) == sorted(ProblemCode)


def test_every_warning_code_is_documented_and_the_reverse() -> None:
    assert sorted(documented("Warnings")) == sorted(WarningCode)


def test_no_code_is_both_a_problem_and_a_warning() -> None:
    assert not set(ProblemCode) & set(WarningCode)
