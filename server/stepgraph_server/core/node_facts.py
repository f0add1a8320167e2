"""What the facts about the ends of nodes change in the folded state.

Rules: everything here follows from the event, the graph and the state before it. What an action ended with is asked of it again where
its event does not say it; what the decision at hand knows already is not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepgraph_server.core import (
    answering,
    approvals,
    lifecycle,
    merge,
    polling,
    spawning,
    unanswered_calls,
)
from stepgraph_server.core.actions import DERIVED, poll_action
from stepgraph_server.core.actions.step import Done
from stepgraph_server.core.preparing import poll_of
from stepgraph_server.core.routing import FOLLOWED
from stepgraph_server.core.state import (
    Activation,
    Carried,
    EdgeResult,
    Outcome,
    Phase,
    RunState,
    carry,
)
from stepgraph_server.core.steps import value_of, with_answer
from stepgraph_server.core.view import settle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph.v1 import event_pb2


def apply_node_completed(state: RunState, event: event_pb2.RunEvent) -> None:
    """The node's action ended well; its view has what it wrote."""
    fact = event.node_completed
    activation = state.activations.get(fact.activation_id)
    if activation is None:
        _apply_spawned_completed(state, fact)
        return
    settled, activation.settled = activation.settled, None
    if settled is None:
        replayed = _replayed_done(state, activation, fact)
        done = with_answer(activation, answering.under_call(state, activation, replayed))
        activation.carried, activation.delta = settle(state, activation, done)
        edges = _recorded_edges(fact.edges)
    else:
        activation.carried, activation.delta = settled.carried, settled.delta
        edges = settled.edges
    activation.acted = True
    if fact.edges_pending:
        activation.phase = Phase.ROUTING
    else:
        _route(state, activation, edges)
        lifecycle.end(activation, Outcome.COMPLETED)


def _apply_spawned_completed(state: RunState, fact: event_pb2.NodeCompleted) -> None:
    child = spawning.locate(state, fact.activation_id)
    settled, child.settled = child.settled, None
    if settled is None:
        value = value_of(child, _replayed_done(state, child, fact))
    else:
        assert settled.carried.last_result is not None
        value = settled.carried.last_result
    spawning.end(state, child, value)


def _recorded_edges(edges: Iterable[event_pb2.EdgeOutcome]) -> tuple[EdgeResult, ...]:
    return tuple([EdgeResult(edge.edge_id, edge.verdict) for edge in edges])


def _replayed_done(state: RunState, activation: Activation, fact: event_pb2.NodeCompleted) -> Done:
    refusal = answering.refusal(state, activation)
    if refusal is not None:
        return refusal
    if approvals.said_no(activation.answer):
        return unanswered_calls.refused(state, activation)
    if activation.program is not None:
        return polling.ending(activation)
    if activation.node.action_kind not in DERIVED:
        return recorded_done(fact)
    step = poll_action(poll_of(state, activation, activation.turn + 1, None))
    assert isinstance(step, Done), step
    return step


def apply_edges_evaluated(state: RunState, event: event_pb2.RunEvent) -> None:
    """The node has ended for the barrier."""
    fact = event.edges_evaluated
    activation = state.activations[fact.activation_id]
    _route(state, activation, _recorded_edges(fact.edges))
    lifecycle.end(activation, Outcome.COMPLETED)


def apply_node_failed(state: RunState, event: event_pb2.RunEvent) -> None:
    """The node failed; what it carries on is what it was entered with, and the failure."""
    fact = event.node_failed
    activation = state.activations.get(fact.activation_id)
    if activation is None:
        spawning.end(state, spawning.locate(state, fact.activation_id), fact.failure)
        return
    activation.failure = fact.failure
    base: Carried = activation.carried if activation.acted else activation.entered_with
    changes: dict[str, object] = {"last_error": fact.failure}
    is_asking = activation.node.action_kind == "llm_infer" and activation.call is None
    if is_asking and not activation.acted:
        # It cleared the decision before it asked its model.
        changes |= {"decision": None, "tools_digest": ""}
    if base.handed is not None:
        # It was for this node only.
        changes["handed"] = None
    activation.carried = carry(base, **changes)
    _route(state, activation, _recorded_edges(fact.edges))
    lifecycle.end(activation, Outcome.FAILED)
    notes = unanswered_calls.after_failure(activation, fact.failure)
    if merge.contributes(activation):
        activation.delta = replace(activation.delta, notes=notes)
    else:
        # The run ends, and nothing of the node is merged.
        merge.note_calls(state, notes)


def _route(state: RunState, activation: Activation, edges: tuple[EdgeResult, ...]) -> None:
    activation.edges = edges
    for edge in edges:
        if edge.verdict == FOLLOWED:
            state.traversals[edge.edge_id] = state.traversals.get(edge.edge_id, 0) + 1


def recorded_done(fact: event_pb2.NodeCompleted) -> Done:
    """Return what an action ended with that its event says itself."""
    update = fact.update
    return Done(
        value=fact.value if fact.HasField("value") else None,
        messages=tuple(update.messages),
        writes=(
            *sorted(update.variables.items()),
            *((name, None) for name in update.delete_variables),
        ),
    )
