"""What things may be called."""

from __future__ import annotations

import pytest

from stepgraph_server.core import names
from stepgraph_server.core.names import did_you_mean, edge_ids
from tests.support.graphs import graph


@pytest.mark.parametrize("name", ["a", "_a", "A.b-c_9", "a" * 64])
def test_an_id_starts_with_a_letter_and_has_at_most_64_characters(name: str) -> None:
    assert names.is_id(name)


@pytest.mark.parametrize("name", ["", "9a", "-a", "a b", "a\n", "ä", "a" * 65])
def test_anything_else_is_no_id(name: str) -> None:
    assert not names.is_id(name)


def test_a_variable_may_be_twice_as_long() -> None:
    assert names.is_variable("a" * 128)
    assert not names.is_variable("a" * 129)


def test_a_failure_code_is_written_in_capitals() -> None:
    assert names.is_failure_code("TOOL_ERROR")
    assert not names.is_failure_code("tool_error")
    assert not names.is_failure_code("T")


@pytest.mark.parametrize(
    "name", ["_approval", "_approval.review", "_approvals", "_choice", "_condition_result.check"]
)
def test_names_that_begin_like_the_servers_are_reserved(name: str) -> None:
    assert names.is_reserved(name)


@pytest.mark.parametrize("name", ["approval", "_x", "x._approval"])
def test_other_names_are_free(name: str) -> None:
    assert not names.is_reserved(name)


def test_only_answers_and_their_copies_say_how_a_question_was_answered() -> None:
    assert all(
        map(names.is_approval, ["_approval", "_approval_feedback.a", "_choice", "_approval.a.b"])
    )
    assert not any(map(names.is_approval, ["_approvals", "_condition_result", "x", "_"]))


def test_a_hint_names_what_is_close() -> None:
    assert did_you_mean("reviev", ["review", "write"]) == "Did you mean review?"


def test_a_hint_lists_what_there_is_if_nothing_is_close() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "There is a, b."
    assert did_you_mean("zzz", list("dcba")) == "There is a, b, c and 1 more."


def test_without_names_there_is_no_hint() -> None:
    assert did_you_mean("zzz", []) == ""


def test_edges_without_an_id_are_named_after_their_ends() -> None:
    definition = graph("a b", ["a > b", "a > b", "b > a", "a > b"])
    assert edge_ids(definition) == ("a.b", "a.b.2", "b.a", "a.b.3")


def test_a_given_id_is_taken_wherever_it_stands() -> None:
    definition = graph(
        "a b", ["a > b", "a > b", ("b > a", {"id": "a.b"}), ("b > a", {"id": "a.b.3"})]
    )
    assert edge_ids(definition) == ("a.b.2", "a.b.4", "a.b", "a.b.3")


def test_many_equal_edges_are_named_in_linear_time() -> None:
    ids = edge_ids(graph("a b", ["a > b"] * 5_000))
    assert len(set(ids)) == 5_000
