"""How the branches of a superstep come together.

Rules: the shared part merges in node-id order, which is the order of `state.activations`; the result never depends on who
ended first. Nothing here emits: what a merge gives follows from the events before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, graph_pb2
from stepgraph_server.core.failures import failure
from stepgraph_server.core.reducers import ReducerError
from stepgraph_server.core.view import reduced

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.state import Activation, CallNote, Carried, RunState

_FOLLOWED = event_pb2.EDGE_VERDICT_FOLLOWED


def merge_ended(state: RunState) -> None:
    """Merge what the superstep's activations wrote, of those that count. There must be no conflict among them."""
    ended = _contributing(state)
    single = len(ended) == 1
    for activation in ended:
        delta = activation.delta
        for message in delta.messages:
            state.conversation.append(message)
        if delta.notes:
            note_calls(state, delta.notes)
        if delta.terminate:
            state.terminate = True
        if not delta.writes:
            continue
        if single:
            _take_overlay(state, activation)
        else:
            _apply_writes(state, activation)
    if ended:
        state.carried = ended[-1].carried


def note_calls(state: RunState, notes: Iterable[CallNote]) -> None:
    """Say why calls have no result. Of one that has a result nothing is said."""
    for note in notes:
        tell = state.conversation.deny if note.denied else state.conversation.note
        tell(note.call_id, note.text)


def _contributing(state: RunState) -> list[Activation]:
    return [each for each in state.activations.values() if each.acted or went_on(each)]


def contributes(activation: Activation) -> bool:
    """Whether what the activation wrote counts: its action ended well, or the run goes on from its failure."""
    return activation.acted or went_on(activation)


def went_on(activation: Activation) -> bool:
    """Whether the run goes on from the activation over one of its edges."""
    return any(edge.verdict == _FOLLOWED for edge in activation.edges)


def last_carried(state: RunState) -> Carried:
    """Return the carried part of the last node, in node-id order, of the superstep that has ended."""
    ended = _contributing(state)
    return ended[-1].carried if ended else state.carried


def terminates(state: RunState) -> bool:
    """Whether the run ends with the superstep because somebody wants it to."""
    if state.terminate:
        return True
    # A loop, as in `superstep.barrier_reached`.
    for activation in state.activations.values():
        if activation.delta.terminate and contributes(activation):
            return True
    return False


def _take_overlay(state: RunState, activation: Activation) -> None:
    overlay = activation.delta.overlay
    # What it sees besides, the input of a node that answers a call, it has not written.
    for name in dict.fromkeys(name for name, _ in activation.delta.writes):
        value = overlay[name]
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


def conflict(state: RunState) -> failure_pb2.Failure | None:
    """Return why the branches of the superstep can't come together, or None. The first variable by name decides."""
    for name, nodes in sorted(_shared_writes(state)):
        kind = state.graph.reducers.get(name)
        if kind == graph_pb2.REDUCER_SINGLE:
            return _failure(
                "STATE_CONFLICT",
                f"{' and '.join(nodes)} wrote the SINGLE variable {name!r} in one superstep; "
                "give it another reducer, or one writer",
                name,
                nodes,
            )
        if kind is not None:
            try:
                _reduce_all(state, name)
            except ReducerError as error:
                # Each write fits by itself, all together do not: a list that grows too large, say.
                message = f"what {' and '.join(nodes)} wrote does not come together: {error}"
                return _failure("REDUCER_TYPE", message, name, nodes)
    return None


def _failure(code: str, message: str, name: str, nodes: list[str]) -> failure_pb2.Failure:
    return failure(code, message, details={"variable": name, "nodes": ",".join(nodes)})


def _reduce_all(state: RunState, variable: str) -> None:
    value = state.variables.get(variable)
    for activation in _contributing(state):
        for name, write in activation.delta.writes:
            if name == variable:
                value = None if write is None else reduced(state.graph, name, value, write)


def overwritten(state: RunState) -> Iterator[tuple[str, list[str]]]:
    """Yield the REPLACE variables that several nodes of the superstep wrote, by name."""
    for name, nodes in sorted(_shared_writes(state)):
        if state.graph.reducers.get(name, graph_pb2.REDUCER_REPLACE) == graph_pb2.REDUCER_REPLACE:
            yield name, nodes


def _shared_writes(state: RunState) -> Iterator[tuple[str, list[str]]]:
    if len(state.activations) < 2:  # a lone node shares nothing: the common path
        return
    ended = _contributing(state)
    yield from ((name, nodes) for name, nodes in writers(ended).items() if len(nodes) > 1)
