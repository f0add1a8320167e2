"""The reference is what the sources say, and the troubleshooting page has an entry for all that can go wrong."""

from __future__ import annotations

import re
from pathlib import Path

from scripts import reference
from stepgraph.v1 import error_reason_pb2
from stepgraph_server.telemetry import names

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def test_the_reference_is_fresh():
    """If this fails: make reference."""
    assert reference.differences(reference.pages(), reference.OUT) == []


def test_everything_of_the_schema_is_in_it_with_its_comment():
    pages = reference.pages()
    text = "\n".join(pages.values())
    for file in reference.read(reference.PROTOS):
        for service in file.service:
            for method in service.method:
                assert f"### {service.name}.{method.name}" in text
        for message in file.message_type:
            assert f"\n## {message.name}\n" in text
            for field in message.field:
                assert f"| `{field.name}` = {field.number} |" in text
    rows = re.findall(r"^\| `.*\|$", text, re.MULTILINE)
    assert [row for row in rows if row.endswith("|  |")] == [], "without a comment"


def test_every_reason_of_a_refusal_has_its_entry():
    """With what it means and what to do; and there is none for a reason that does not exist."""
    prefix = "ERROR_REASON_"
    reasons = {
        name.removeprefix(prefix)
        for name in dict(error_reason_pb2.ErrorReason.items())
        if name != f"{prefix}UNSPECIFIED"
    }
    text = (DOCS / "troubleshooting.md").read_text()
    rows = dict(
        re.findall(r"^\| `([A-Z_]+)` \| ([^|\n]+\|[^|\n]+\|[^|\n]+)\|$", text, re.MULTILINE)
    )
    assert rows.keys() == reasons
    for reason, cells in rows.items():
        code, means, remedy = (cell.strip() for cell in cells.split("|"))
        assert re.fullmatch(r"[A-Z_]+", code), reason
        assert means.endswith("."), f"{reason}: whole sentences"
        assert remedy.endswith("."), f"{reason}: whole sentences"
        declared = reference_comment(reason)
        assert declared.startswith(code), f"{reason} is {declared[:30]}"


def reference_comment(reason: str) -> str:
    text = (DOCS / "reference" / "protos" / "error_reason.md").read_text()
    found = re.search(rf"^\| `ERROR_REASON_{reason}` = \d+ \| (.+) \|$", text, re.MULTILINE)
    assert found is not None, reason
    return found[1]


def test_operations_names_every_alarm():
    """What an operator should be woken for stands on one page."""
    text = (DOCS / "operations.md").read_text()
    alarms = (
        names.READINESS_LOST,
        names.JOURNAL_FAILED,
        names.SERVER_FAILED,
        names.CALL_FAULT,
        names.LOOP_LAGGED,
        names.DATA_EPHEMERAL,
        names.DATA_REMOTE,
    )
    assert [action for action in alarms if f"`{action}`" not in text] == []
