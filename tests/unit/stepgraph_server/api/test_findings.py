"""Everything that is wrong ends in one refusal that lists all of it."""

from __future__ import annotations

import pytest

from stepgraph_server.api.findings import MAX_FINDINGS, Findings
from stepgraph_server.core.errors import Refused, Violation


def refused(findings):
    with pytest.raises(Refused) as caught:
        findings.refuse_if_any()
    return caught.value


def test_nothing_found_refuses_nothing():
    Findings().refuse_if_any()


def test_one_finding_is_the_refusal():
    findings = Findings()
    findings.add("run_id", "is missing")

    error = refused(findings)

    assert (error.reason, error.message) == ("INVALID_REQUEST", "run_id: is missing")
    assert error.metadata == {"field": "run_id"}
    assert [(v.path, v.message) for v in error.violations] == [("run_id", "is missing")]


def test_several_findings_are_all_listed_and_counted():
    findings = Findings()
    findings.add("run_id", "is missing")
    findings.add("labels", "are odd")

    error = refused(findings)

    assert error.message == "run_id: is missing (and 1 more)"
    assert [v.path for v in error.violations] == ["run_id", "labels"]


def test_the_reason_is_that_of_what_must_be_looked_at_first():
    findings = Findings()
    findings.not_yet("delay")
    findings.too_large("input", 20, 10)
    findings.add("graph", "is unset", reason="UNKNOWN_VARIANT")

    error = refused(findings)

    assert (error.reason, error.metadata["field"]) == ("UNKNOWN_VARIANT", "graph")
    assert [v.reason for v in error.violations] == [
        "NOT_YET_SUPPORTED",
        "PAYLOAD_TOO_LARGE",
        "UNKNOWN_VARIANT",
    ]


def test_too_large_has_size_and_limit():
    findings = Findings()
    findings.too_large("input", 2_000, 1_000, "Send less.")

    error = refused(findings)

    assert error.metadata == {"field": "input", "limit_bytes": "1000", "size_bytes": "2000"}
    assert error.message == "input: has 2,000 bytes, of at most 1,000. Send less."


def test_too_many_has_number_and_limit():
    findings = Findings()
    findings.too_many("labels", 70, 64, "max_labels")

    error = refused(findings)

    assert error.reason == "LIMIT_EXCEEDED"
    assert error.metadata == {
        "field": "labels",
        "limit_name": "max_labels",
        "limit": "64",
        "actual": "70",
    }


def test_there_is_an_end_to_collecting():
    findings = Findings()

    for n in range(MAX_FINDINGS + 10):
        findings.add(f"x[{n}]", "is wrong")

    assert findings.is_full
    assert len(refused(findings).violations) == MAX_FINDINGS


def test_what_was_found_first_about_a_field_stands():
    findings = Findings()
    findings.add("x", "is not JSON", reason="JSON_INVALID", metadata={"line": "1"})
    findings.report(Violation(path="x", message="is wrong"), {})

    error = refused(findings)

    assert error.metadata == {"field": "x", "line": "1"}
    assert len(error.violations) == 1
