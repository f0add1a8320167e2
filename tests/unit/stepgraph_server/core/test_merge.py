"""How branches come together: in node-id order, only what counts, or not at all."""

from __future__ import annotations

from stepgraph.v1 import conversation_pb2, event_pb2
from stepgraph_server.core import merge
from stepgraph_server.core.state import Activation, Carried, Delta, Outcome, RunState
from stepgraph_server.core.view import write
from tests.support.core_pieces import activation_of, compiled, json, state_of, text

GRAPH = compiled(
    """
reducers: {log: append, one: single}
nodes: [{id: a, assign: {}}, {id: b, assign: {}}, {id: c, assign: {}}]
edges: [{from: a, to: b}, {from: a, to: c}]
"""
)


def acted(state: RunState, node: str, **writes: object) -> Activation:
    activation = activation_of(GRAPH, node, Carried(last_result=text(node)))
    activation.acted, activation.outcome = True, Outcome.COMPLETED
    for name, value in writes.items():
        write(state, activation.delta, name, value)  # type: ignore[arg-type]
    state.activations[activation.id] = activation
    return activation


def test_writes_and_messages_come_in_node_id_order() -> None:
    state = state_of(GRAPH, log=json("[0]"), gone=text("x"))
    acted(state, "b", log=json("1"), x=text("b"), gone=None)
    acted(state, "c", log=json("2"), x=text("c"))
    for activation in state.activations.values():
        activation.delta.messages.append(
            conversation_pb2.Message(metadata={"node": activation.node.id})
        )
    assert list(merge.overwritten(state)) == [("x", ["b", "c"])]
    merge.merge_ended(state)
    assert state.variables == {"log": json("[0,1,2]"), "x": text("c")}
    assert [each.metadata["node"] for each in state.conversation.messages()] == ["b", "c"]
    assert state.carried.last_result == text("c")


def test_a_lone_writer_is_taken_as_it_is() -> None:
    state = state_of(GRAPH, gone=text("x"))
    acted(state, "a", one=text("1"), gone=None)
    assert merge.conflict(state) is None
    merge.merge_ended(state)
    assert state.variables == {"one": text("1")}


def test_what_was_stopped_before_it_acted_does_not_count() -> None:
    state = state_of(GRAPH)
    stopped = acted(state, "b", x=text("b"))
    stopped.acted, stopped.outcome = False, Outcome.CANCELLED
    merge.merge_ended(state)
    assert not state.variables
    assert merge.last_carried(state) is state.carried


def test_a_failed_node_counts_if_the_run_goes_on_from_it() -> None:
    state = state_of(GRAPH)
    failed = acted(state, "b")
    failed.acted, failed.outcome = False, Outcome.FAILED
    assert not merge.contributes(failed)
    failed.edges = (event_pb2.EdgeOutcome(edge_id="e", verdict=event_pb2.EDGE_VERDICT_FOLLOWED),)
    assert merge.contributes(failed)
    assert merge.last_carried(state) is failed.carried


def test_two_writers_of_a_single_variable_are_a_conflict() -> None:
    state = state_of(GRAPH)
    acted(state, "b", one=text("1"))
    acted(state, "c", one=text("2"))
    why = merge.conflict(state)
    assert why is not None
    assert (why.code, why.details["nodes"]) == ("STATE_CONFLICT", "b,c")


def test_writes_that_fit_one_by_one_only_are_a_conflict() -> None:
    state = state_of(GRAPH)
    large = json('["' + "x" * 200_000 + '"]')
    acted(state, "b", log=large)
    acted(state, "c", log=large)
    why = merge.conflict(state)
    assert why is not None
    assert (why.code, why.details["variable"]) == ("REDUCER_TYPE", "log")


def test_a_deletion_between_writes_starts_anew() -> None:
    state = state_of(GRAPH, log=json("[0]"))
    acted(state, "b", log=None)
    acted(state, "c", log=json("1"))
    assert merge.conflict(state) is None
    merge.merge_ended(state)
    assert state.variables["log"] == json("[1]")


def test_somebody_may_want_the_run_to_end() -> None:
    state = state_of(GRAPH)
    acted(state, "b").delta = Delta(terminate=True)
    assert merge.terminates(state)
    merge.merge_ended(state)
    assert state.terminate
