"""The token budget: what was left when the superstep started decides, and what a node has used since."""

from __future__ import annotations

from stepgraph_server.core.budget import budget_failure
from tests.support.core_pieces import activation_of, compiled, state_of

GRAPH = compiled("nodes: [{id: a, llm_infer: {}}]")


def test_without_a_limit_work_may_start() -> None:
    assert budget_failure(state_of(GRAPH), activation_of(GRAPH, "a")) is None


def test_while_something_was_left_at_the_start_work_may_start() -> None:
    state = state_of(GRAPH)
    state.token_limit, state.budget_at_start, state.tokens.input = 10, 1, 50
    assert budget_failure(state, activation_of(GRAPH, "a")) is None


def test_with_nothing_left_at_the_start_it_may_not() -> None:
    state = state_of(GRAPH)
    state.token_limit, state.budget_at_start, state.tokens.input = 10, 0, 50
    why = budget_failure(state, activation_of(GRAPH, "a"))
    assert why is not None
    assert (why.code, why.details["used"]) == ("TOKEN_BUDGET_SPENT", "50")
    assert state.budget_remaining == 0


def test_what_a_node_has_used_counts_for_what_it_spawned() -> None:
    state = state_of(GRAPH)
    state.token_limit, state.budget_at_start = 100, 50
    node, child, other = (activation_of(GRAPH, "a") for _ in range(3))
    child.parent, node.spent = node, 49
    assert budget_failure(state, child) is None
    node.spent = 50
    why = budget_failure(state, child)
    assert why is not None
    assert "'a' did not go on" in why.message
    assert budget_failure(state, other) is None, "parallel nodes are not treated by chance"
