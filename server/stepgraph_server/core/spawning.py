"""Spawned work: activations inside an activation, started as far as the cap allows, and joined.

Rules: spawned work is there from its first event on, and gone with its last; which there is, and what of it has not started, follows
from the recorded Spawn. It reads the view of what spawned it and writes nothing. Where a join is decided early, what is left
ends in the same append: attempts, sleeps, questions, and what that has spawned in turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, graph_pb2, transition_pb2, value_pb2
from stepgraph_server.core import json_text, tasks
from stepgraph_server.core.state import (
    Activation,
    Carried,
    Delta,
    Phase,
    RunState,
    Settled,
    carry,
)
from stepgraph_server.core.values import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepgraph.v1 import failure_pb2, interrupt_pb2
    from stepgraph_server.core.graph import CompiledNode
    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.spawn import Outcome
    from stepgraph_server.core.turn import Turn


def next_child(state: RunState, parent: Activation) -> Activation | None:
    """Return the next piece of work to start, or None if nothing may be started now."""
    spawn = parent.spawn
    return _make(state, parent, spawn.started) if spawn is not None and spawn.can_start else None


def _make(state: RunState, parent: Activation, index: int) -> Activation:
    spawn = parent.spawn
    assert spawn is not None
    spec = spawn.wanted.specs[index]
    given = spec.input if spec.HasField("input") else value_pb2.Value()
    place = {"item": given, "item_index": value_pb2.Value(json=str(index))}
    # What was decided before is not its to carry out: it could not write the results under their calls.
    carried = carry(parent.carried, decision=None, tools_digest="", handed=None)
    child = Activation(
        f"{parent.id}/t{spawn.turn}/s{index}",
        _body(state, parent.node, spec.body),
        parent.superstep,
        carried,
        carried,
        Delta([], {**parent.delta.overlay, **place}, parent.delta.messages),
    )
    child.parent, child.place, child.given = parent, index, given
    return child


def body_of(state: RunState, child: Activation) -> CompiledNode:
    """Return the node that spawned work is a running of, in the run's graph as it is now."""
    parent = child.parent
    assert parent is not None
    assert parent.spawn is not None
    return _body(state, parent.node, parent.spawn.wanted.specs[child.place].body)


def bodies(state: RunState) -> Iterator[CompiledNode]:
    """Return the nodes that are bodies of Spawns that are under way, also of what has not begun."""
    for activation in (*state.activations.values(), *state.spawned.values()):
        if activation.spawn is not None and not activation.spawn.decided:
            specs = activation.spawn.wanted.specs
            for node_id in sorted({each.body.node_id for each in specs if each.body.node_id}):
                yield state.graph.nodes[node_id]


def _body(state: RunState, spawner: CompiledNode, body: graph_pb2.NodeBody) -> CompiledNode:
    """Return the node that a body is; a program gets one of its own, with what its spawner says of tries and executors."""
    if body.WhichOneof("kind") == "node_id":
        return state.graph.nodes[body.node_id]
    key = ("body", spawner.id, body.program)
    known = state.caches.get(key)
    if known is None:
        known = replace(
            spawner,
            action_kind="step",
            action=graph_pb2.NodeAction.Step(program=body.program),
            interrupt=False,
            asks=False,
            streams=False,
            max_concurrency=0,
            check=None,
            expressions={},
        )
        state.caches[key] = known
    return known  # type: ignore[return-value]  # put there above


def answered(activation: Activation) -> value_pb2.Value:
    """Return the answer to the question of spawned work, as a value."""
    answer = activation.answer
    assert answer is not None
    return from_json(_answer_json(answer))


def _answer_json(answer: interrupt_pb2.InterruptAnswer) -> JsonValue:
    match answer.WhichOneof("kind"):
        case "choose":
            return {"approval": "choose", "choice": answer.choose.option_id}
        case "revise":
            return {"approval": "revise", "feedback": answer.revise.feedback}
        case "proceed_with":
            tree: dict[str, JsonValue] = {"approval": "proceed"}
            if answer.proceed_with.variables:
                variables = sorted(answer.proceed_with.variables.items())
                tree["variables"] = {name: _shown(value) for name, value in variables}
            if answer.proceed_with.message:
                tree["message"] = answer.proceed_with.message
            return tree
        case _:
            return {"approval": "proceed"}


def _shown(value: value_pb2.Value) -> JsonValue:
    if value.HasField("json"):
        return json_text.parse(value.json)
    kind = value.WhichOneof("kind")
    return to_json(value) if kind in ("text", None) else {"kind": kind}


def complete(turn: Turn, child: Activation, value: value_pb2.Value) -> None:
    """End spawned work with a value."""
    event = turn.next_event()
    event.node_completed.activation_id = child.id
    event.node_completed.node_id = child.node.id
    child.settled = Settled(Carried(value), child.delta)
    turn.record(event)
    _after_end(turn, child)


def fail(turn: Turn, child: Activation, why: failure_pb2.Failure) -> None:
    """End spawned work with a failure."""
    fact = event_pb2.NodeFailed(activation_id=child.id, node_id=child.node.id, failure=why)
    turn.emit("node_failed", fact)
    _after_end(turn, child)


def _after_end(turn: Turn, child: Activation) -> None:
    """Let what spawned it go on; end what is left if the join is decided by it."""
    parent = child.parent
    assert parent is not None
    if parent.spawn is not None and parent.spawn.decided:
        _cancel_rest(turn, parent)
    turn.agenda.append(parent)


def _cancel_rest(turn: Turn, parent: Activation) -> None:
    """End everything that is outstanding of what an activation has spawned; executors are told to stop."""
    spawn = parent.spawn
    assert spawn is not None
    tasks.cancel_within(turn, parent, spawn.reason, spawned=True)
    _close_questions(turn, f"{parent.id}/", spawn.reason)


def _close_questions(turn: Turn, prefix: str, reason: str) -> None:
    """Close the questions of activations whose ids begin with `prefix`."""
    state = turn.state
    if not state.open_questions:
        return
    for name, question in list(state.questions.items()):
        if question.open and question.interrupt.activation_id.startswith(prefix):
            turn.emit(
                "interrupt_closed", event_pb2.InterruptClosed(interrupt_id=name, reason=reason)
            )


# Facts


def locate(state: RunState, activation_id: str) -> Activation:
    """Return an activation by its id, also of spawned work whose first event this is. Raises KeyError for an unknown one."""
    found = state.activations.get(activation_id)
    if found is None:
        found = state.spawned.get(activation_id)
    if found is None:
        parent_id, _, place = activation_id.rsplit("/", 2)
        found = _make(state, locate(state, parent_id), int(place[1:]))
        enter(state, found)
    return found


def enter(state: RunState, child: Activation) -> None:
    """Spawned work has its first event."""
    if child.id in state.spawned:
        return
    assert child.parent is not None
    spawn = child.parent.spawn
    assert spawn is not None
    state.spawned[child.id] = child
    spawn.started = child.place + 1
    spawn.live += 1


def end(state: RunState, child: Activation, outcome: Outcome) -> None:
    """Spawned work has ended."""
    parent = child.parent
    assert parent is not None
    spawn = parent.spawn
    assert spawn is not None
    child.phase = Phase.ENDED
    state.spawned.pop(child.id, None)
    spawn.end(child.place, outcome, parent.node.id)
    _tell(parent, child.place, outcome)
    if spawn.decided and spawn.left:
        drop(state, parent)
        for index in spawn.cancelled():
            cancelled = spawn.outcomes[index]
            assert cancelled is not None
            _tell(parent, index, cancelled)


def drop(state: RunState, parent: Activation) -> None:
    """Forget what an activation has spawned, however deep."""
    for child in [each for each in state.spawned.values() if each is not parent]:
        if tasks.is_within(child, parent):
            child.phase = Phase.ENDED
            del state.spawned[child.id]


def _tell(parent: Activation, index: int, outcome: Outcome) -> None:
    """Keep an outcome for the next poll of the program that spawned it."""
    if parent.node.action_kind == "map":
        # It is not polled again: its list is made of the outcomes themselves.
        return
    program, spawn = parent.program, parent.spawn
    assert program is not None
    assert spawn is not None
    label = spawn.label(index)
    if isinstance(outcome, value_pb2.Value):
        node = transition_pb2.EffectResult.Node(label=label, output=outcome)
        program.tell(
            transition_pb2.EffectResult(turn=spawn.turn, index=index, label=label, node=node)
        )
    else:
        program.end(spawn.turn, index, label, outcome)


__all__ = [
    "answered",
    "bodies",
    "body_of",
    "complete",
    "drop",
    "end",
    "enter",
    "fail",
    "locate",
    "next_child",
]
