"""Whether a step program's reply can be recorded as the answer to its poll.

Rules: everything that can be wrong with a reply is found here, before it is recorded, so what is recorded can be carried out. The
first fault is told, with the turn and the path of the field, and what to do. None of these is tried again by default: the
same program would say the same again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core import step_reply_effects, step_reply_spawns, step_reply_suspends
from stepgraph_server.core.bad_reply import BadReply, refuse_violations
from stepgraph_server.core.failures import failure
from stepgraph_server.core.names import did_you_mean
from stepgraph_server.core.reducers import ReducerError
from stepgraph_server.core.routing import spent
from stepgraph_server.core.values import check_update, check_value
from stepgraph_server.core.view import updated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from google.protobuf.message import Message

    from stepgraph.v1 import failure_pb2, transition_pb2, value_pb2
    from stepgraph_server.core.inputs import RunLimits
    from stepgraph_server.core.state import Activation, RunState, Task

_VARIANTS: Final = "await_effects, spawn, goto, suspend or done"


def accept_reply(
    state: RunState,
    task: Task,
    reply: transition_pb2.StepReply,
    limits: RunLimits,
    *,
    taken: bool = False,
) -> failure_pb2.Failure | None:
    """Make a reply what it is to be recorded as, in place, and return None; or return why it can't be recorded.

    `taken` says that a question of another run waits for the token that it wants to wait for.
    """
    try:
        step_reply_suspends.refuse_taken(taken=taken)
        _check_update(state, task.activation, reply)
        _check_transition(state, task.activation, reply.transition, limits)
    except BadReply as bad:
        where = f"{bad.path}: " if bad.path else ""
        return failure(
            bad.code,
            f"turn {task.turn} of {task.key[1]!r}: {where}{bad.message}",
            source=task.activation.node.id,
            details={"turn": str(task.turn), "field": bad.path, "program": task.key[1]},
        )
    return None


def _check_update(state: RunState, activation: Activation, reply: transition_pb2.StepReply) -> None:
    if not reply.HasField("update"):
        return
    update = reply.update
    if activation.parent is not None:
        message = "spawned work has no state to change; give what it found with Done"
        raise BadReply(path="update", message=message)
    refuse_violations(check_update(update, "update"))
    _check_paradigm(state, update.paradigm, "update.paradigm")
    if update.HasField("decision"):
        switch = update.decision.switch_paradigm.paradigm
        _check_paradigm(state, switch, "update.decision.switch_paradigm.paradigm")
        if update.decision.HasField("tool_calls"):
            update.decision.tool_calls.count = len(update.decision.tool_calls.calls)
    try:
        updated(state, activation, update)
    except ReducerError as error:
        message = f"{error}"
        raise BadReply(path="update.variables", message=message, code="REDUCER_TYPE") from error


def _check_paradigm(state: RunState, paradigm: str, path: str) -> None:
    paradigms = state.graph.paradigms
    if paradigm and paradigm not in paradigms:
        message = f"the graph has no paradigm {paradigm!r}. {did_you_mean(paradigm, paradigms)}"
        raise BadReply(path=path, message=message, code="PARADIGM_UNKNOWN")


def _check_transition(
    state: RunState,
    activation: Activation,
    transition: transition_pb2.Transition,
    limits: RunLimits,
) -> None:
    path = "transition"
    match transition.WhichOneof("kind"):
        case "await_effects":
            awaited = transition.await_effects
            at = f"{path}.await_effects"
            step_reply_effects.check_await(state, activation, awaited, at, limits)
        case "goto":
            _check_goto(state, activation, transition.goto, f"{path}.goto")
        case "done":
            _check_given(transition.done, "value", f"{path}.done")
        case "suspend":
            step_reply_suspends.check_suspend(state, transition.suspend, f"{path}.suspend")
        case "spawn":
            spawned = transition.spawn
            step_reply_spawns.check_spawn(state, activation, spawned, f"{path}.spawn", limits)
        case None:
            message = f"is unset, or a variant that this server does not know; set {_VARIANTS}"
            raise BadReply(path=path, message=message)


def _check_given(
    message: transition_pb2.Transition.Done | transition_pb2.Transition.Goto, name: str, path: str
) -> None:
    """Check a value that may be absent, which means empty."""
    value: value_pb2.Value = getattr(message, name)
    if message.HasField(name) and value.WhichOneof("kind") is not None:  # type: ignore[arg-type]  # both have it
        refuse_violations(check_value(value, f"{path}.{name}"))


def _check_goto(
    state: RunState, activation: Activation, goto: transition_pb2.Transition.Goto, path: str
) -> None:
    node, target = activation.node, goto.target
    if activation.parent is not None:
        message = "spawned work can't go to another node; end it with Done, and let the node that spawned it go there"
        raise BadReply(path=path, message=message, code="HANDOFF_MISSING")
    edge = node.handoffs.get(target)
    if edge is None:
        hint = (
            did_you_mean(target, node.handoffs)
            or "It has none: add an edge with handoff: true to the graph."
        )
        message = f"no handoff edge leads from {node.id!r} to {target!r}. {hint}"
        raise BadReply(path=f"{path}.target", message=message, code="HANDOFF_MISSING")
    if node.terminal:
        message = f"{node.id!r} is a terminal node, with which the run is over; end it with Done"
        raise BadReply(path=path, message=message, code="HANDOFF_MISSING")
    if spent(state, edge):
        message = (
            f"the handoff {edge.id!r} was followed as often as it may be (max_traversals is {edge.max_traversals}); raise "
            "the cap, or end with something else"
        )
        raise BadReply(path=f"{path}.target", message=message, code="HANDOFF_SPENT")
    _check_given(goto, "carry", path)


def stored_in_reply(
    reply: transition_pb2.StepReply, digests: Callable[[Message], Iterable[str]]
) -> list[str]:
    """Return the digests of all stored values that a reply refers to; `digests` finds them in a message.

    What can't refer to any is passed over: a reply may have ten thousand effects.
    """
    return list(dict.fromkeys(each for part in _parts(reply) for each in digests(part)))


def _parts(reply: transition_pb2.StepReply) -> Iterator[Message]:
    if reply.HasField("update"):
        yield reply.update
    transition = reply.transition
    kind = transition.WhichOneof("kind")
    if kind == "await_effects":
        for effect in transition.await_effects.effects:
            if effect.HasField("llm") or effect.custom.payload.HasField("stored"):
                yield effect
    elif kind == "spawn":
        for spec in transition.spawn.specs:
            if spec.input.HasField("stored"):
                yield spec
    elif kind is not None:
        yield transition


__all__ = ["accept_reply", "stored_in_reply"]
