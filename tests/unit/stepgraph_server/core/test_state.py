"""The folded state: budgets, reasons, and carried parts that are replaced, never changed."""

from __future__ import annotations

from stepgraph.v1 import failure_pb2, llm_pb2, run_pb2
from stepgraph_server.core.instants import Instant
from stepgraph_server.core.state import Carried, Stopping, Tokens, carry
from tests.support.core_pieces import compiled, state_of

GRAPH = compiled("nodes: [{id: a, assign: {}}]")


def test_without_a_limit_there_is_no_budget_and_a_spent_one_is_zero() -> None:
    state = state_of(GRAPH)
    assert state.budget_remaining is None
    state.token_limit, state.tokens = 10, Tokens(input=8, output=7)
    assert state.budget_remaining == 0


def test_cached_and_reasoning_tokens_are_counted_apart() -> None:
    tokens = Tokens()
    tokens.add(
        llm_pb2.Usage(input_tokens=5, output_tokens=2, cached_input_tokens=4, reasoning_tokens=1)
    )
    assert (tokens.used, tokens.cached_input, tokens.reasoning) == (7, 4, 1)


def test_a_carried_part_is_replaced() -> None:
    old = Carried(paradigm="p")
    assert carry(old, paradigm="q") == Carried(paradigm="q")
    assert old.paradigm == "p"


def test_what_is_stopped_says_whose_collateral_it_is() -> None:
    why = failure_pb2.Failure(message="no more")
    stop = Stopping(outcome=run_pb2.RUN_STATUS_FAILED, failure=why, grace_at=Instant(0))
    assert stop.reason == "no more"
    by_node = Stopping(outcome=7, failure=why, grace_at=Instant(0), node_id="a")
    assert by_node.reason == "collateral of a"


def test_a_run_that_has_finished_is_final() -> None:
    state = state_of(GRAPH)
    assert not state.final
    state.finish(run_pb2.RUN_STATUS_FAILED)
    assert (state.status, state.final) == (run_pb2.RUN_STATUS_FAILED, True)
