"""Failures of the server's own: a code from one table, and messages of bounded length."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepgraph.v1 import failure_pb2
from stepgraph_server.core.failures import CODES, MAX_CAUSES, MAX_MESSAGE_BYTES, cut, failure
from stepgraph_server.core.names import is_failure_code

_ROOT = Path(__file__).parents[4]
_README = _ROOT / "protos" / "README.md"
_SERVER = _ROOT / "server" / "stepgraph_server"


def test_a_failure_has_the_category_of_its_code() -> None:
    made = failure("RUN_LIMIT", "too slow", source="a", details={"limit": "3"})
    assert made.category == failure_pb2.FAILURE_CATEGORY_TIME_LIMIT
    assert made.retryable
    assert made.details == {"limit": "3"}


def test_a_code_that_is_not_listed_is_a_mistake() -> None:
    with pytest.raises(KeyError):
        failure("NO_SUCH_CODE", "")


def test_at_most_ten_causes_are_kept() -> None:
    causes = [failure("TOOL_ERROR", str(number)) for number in range(20)]
    assert len(failure("TOOL_ERROR", "", causes=causes).causes) == MAX_CAUSES


def test_long_messages_are_cut_with_a_mark_and_never_inside_a_character() -> None:
    made = cut("é" * MAX_MESSAGE_BYTES)
    assert len(made.encode()) <= MAX_MESSAGE_BYTES
    assert made.endswith("é… (cut)")
    assert cut("short") == "short"


def test_every_code_may_be_the_code_of_a_failure() -> None:
    assert all(is_failure_code(code) for code in CODES)


def test_the_documented_codes_are_those_that_the_server_gives() -> None:
    """The table in protos/README.md says of each code its category and whether it is tried again."""
    of_server, _, _ = _README.read_text(encoding="utf-8").partition("### Codes of the Python")
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+) \| (yes|no) \|", of_server, re.MULTILINE)
    documented = {code: (category, retryable == "yes") for code, category, retryable in rows}
    given = {
        code: (
            failure_pb2.FailureCategory.Name(category).removeprefix("FAILURE_CATEGORY_"),
            retryable,
        )
        for code, (category, retryable) in CODES.items()
    }
    assert documented == given


def test_every_code_is_given_somewhere() -> None:
    """A code that nothing gives any more would be documented for nothing."""
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for path in _SERVER.rglob("*.py")
        if path.name != "failures.py"
    )
    assert not [code for code in CODES if f'"{code}"' not in sources]
