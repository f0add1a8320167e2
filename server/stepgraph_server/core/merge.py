"""How the branches of a superstep come together.

Rules: the shared part merges in node-id order, which is the order of `state.activations`; the result never depends on who
ended first. Nothing here emits: what a merge gives follows from the events before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, graph_pb2
from stepgraph_server.core.state import Outcome
from stepgraph_server.core.view import reduced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepgraph_server.core.state import Activation, RunState

_FOLLOWED = event_pb2.EDGE_VERDICT_FOLLOWED


def merge_ended(state: RunState) -> None:
    """Merge what the superstep's activations wrote, of those that ended by themselves, and forget them."""
    ended = [activation for activation in state.activations.values() if contributes(activation)]
    single = len(ended) == 1
    for activation in ended:
        delta = activation.delta
        for message in delta.messages:
            state.conversation.append(message)
        if delta.terminate:
            state.terminate = True
        if single:
            _take_overlay(state, activation)
        else:
            _apply_writes(state, activation)
    if ended:
        state.carried = ended[-1].carried


def contributes(activation: Activation) -> bool:
    """Whether what the activation wrote counts: it ended by itself, and the run goes on from it or its action ended well."""
    match activation.outcome:
        case Outcome.COMPLETED:
            return True
        case Outcome.FAILED:
            return activation.acted or any(edge.verdict == _FOLLOWED for edge in activation.edges)
        case _:
            return False


def _take_overlay(state: RunState, activation: Activation) -> None:
    for name, value in activation.delta.overlay.items():
        if value is None:
            state.variables.pop(name, None)
        else:
            state.variables[name] = value


def _apply_writes(state: RunState, activation: Activation) -> None:
    for name, value in activation.delta.writes:
        if value is None:
            state.variables.pop(name, None)
        else:
            state.variables[name] = reduced(state.graph, name, state.variables.get(name), value)


def writers(activations: Iterable[Activation]) -> dict[str, list[str]]:
    """Return which nodes wrote which variable, in node-id order."""
    found: dict[str, list[str]] = {}
    for activation in activations:
        for name in dict.fromkeys(name for name, _ in activation.delta.writes):
            found.setdefault(name, []).append(activation.node.id)
    return found


def single_conflict(state: RunState) -> tuple[str, list[str]] | None:
    """Return the first SINGLE variable, by name, that several nodes of the superstep wrote, and these nodes."""
    for name, nodes in sorted(_shared_writes(state)):
        if state.graph.reducers.get(name) == graph_pb2.REDUCER_SINGLE:
            return name, nodes
    return None


def overwritten(state: RunState) -> Iterator[tuple[str, list[str]]]:
    """Yield the REPLACE variables that several nodes of the superstep wrote, by name."""
    for name, nodes in sorted(_shared_writes(state)):
        if state.graph.reducers.get(name, graph_pb2.REDUCER_REPLACE) == graph_pb2.REDUCER_REPLACE:
            yield name, nodes


def _shared_writes(state: RunState) -> Iterator[tuple[str, list[str]]]:
    if len(state.activations) < 2:  # noqa: PLR2004  # a lone node shares nothing: the common path
        return
    ended = [activation for activation in state.activations.values() if contributes(activation)]
    yield from ((name, nodes) for name, nodes in writers(ended).items() if len(nodes) > 1)
