"""Single fields of requests."""

from __future__ import annotations

import pytest

from stepgraph_server.api.fields import FieldCheck
from stepgraph_server.api.findings import Findings
from stepgraph_server.core.errors import Refused
from tests.support.checked_requests import DIGEST, LIMITS


def problems(rule, *arguments, **named):
    findings = Findings()
    getattr(FieldCheck(LIMITS, findings), rule)(*arguments, **named)
    try:
        findings.refuse_if_any()
    except Refused as error:
        return [(each.path, each.message) for each in error.violations]
    return []


@pytest.mark.parametrize("text", ["greet", "greet@3", DIGEST])
def test_a_graph_is_a_name_a_version_or_a_digest(text):
    assert problems("graph", text) == []


@pytest.mark.parametrize("text", ["", "greet@", "greet@x", "a b", "sha256:12"])
def test_what_is_no_graph_is_said_with_its_field(text):
    [(path, _)] = problems("graph", text, "filter.graph")
    assert path == "filter.graph"


def test_what_may_be_empty_may_be():
    assert problems("graph", "", may_be_empty=True) == []
    assert problems("run_id", "", may_be_empty=True) == []
    assert problems("run_id", "") == [("run_id", "is missing")]


def test_a_text_is_counted_in_characters_and_a_size_in_bytes():
    assert problems("text", "ü" * 10, "reason", 10) == []
    assert problems("text", "ü" * 11, "reason", 10) == [
        ("reason", "has 11 characters, of at most 10")
    ]
    assert problems("size", "ü" * 5, "feedback", 10) == []
    [(path, _)] = problems("size", "ü" * 6, "feedback", 10)
    assert path == "feedback"


def test_variables_that_only_the_server_writes_are_refused():
    [(path, message)] = problems("not_reserved", ["ok", "_approval"], "input.variables")
    assert (path, message) == ("input.variables._approval", "only the server writes this variable")
