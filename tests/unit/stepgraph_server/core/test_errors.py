"""The exceptions of the server carry what their messages say."""

from __future__ import annotations

from stepgraph_server.core.errors import (
    GraphInvalid,
    Problem,
    Quarantined,
    Refused,
    StepgraphError,
    Violation,
)
from stepgraph_server.core.instants import SECOND


def test_a_refusal_carries_reason_metadata_violations_and_when_to_retry():
    """Everything that becomes part of a status is a field."""
    violation = Violation(path="run_id", message="too long")

    refused = Refused(
        "OVERLOADED",
        "try later",
        metadata={"limit_name": "x"},
        violations=[violation],
        retry_after=SECOND,
    )

    assert isinstance(refused, StepgraphError)
    assert str(refused) == "OVERLOADED: try later"
    assert (refused.reason, refused.message) == ("OVERLOADED", "try later")
    assert refused.metadata == {"limit_name": "x"}
    assert refused.violations == (violation,)
    assert refused.retry_after == SECOND


def test_a_refusal_needs_no_more_than_a_reason_and_a_message():
    """What is not given is empty, not missing."""
    refused = Refused("RUN_NOT_FOUND", "no such run")

    assert (refused.metadata, refused.violations, refused.retry_after) == ({}, (), None)


def test_a_quarantined_run_says_how_far_it_could_be_read():
    """Readers need the last good sequence."""
    error = Quarantined("r1", 7, "unknown event")

    assert (error.run_id, error.last_sequence, error.cause_text) == ("r1", 7, "unknown event")
    assert "r1" in str(error)
    assert "7" in str(error)


def test_an_invalid_graph_carries_all_problems_and_names_the_first():
    """A person who sees only the message still learns where to begin."""
    problems = [
        Problem(code="X", path="nodes[0].id", message="is empty"),
        Problem(code="Y", path="edges[1]", message="leads nowhere", hint="name a node"),
    ]

    error = GraphInvalid(problems)

    assert error.problems == tuple(problems)
    assert str(error) == "2 problem(s), the first at nodes[0].id: is empty"
