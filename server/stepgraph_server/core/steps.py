"""The driver: polls the action of an activation and does what its step says, until it waits or has ended.

Rules: the driver understands steps only, never what an action is about. A node that ends is routed at once; an outcome
that ends the run acts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from stepgraph.v1 import event_pb2, state_pb2, value_pb2
from stepgraph_server.core import (
    answering,
    approvals,
    interrupts,
    lifecycle,
    polling,
    scheduling,
    spawning,
    suspending,
    tasks,
    unanswered_calls,
)
from stepgraph_server.core.actions import DERIVED, poll_action, tool_question
from stepgraph_server.core.actions.step import (
    Await,
    Child,
    Done,
    Effect,
    Fail,
    Pause,
    Suspend,
)
from stepgraph_server.core.budget import budget_failure
from stepgraph_server.core.failures import failure
from stepgraph_server.core.instants import after
from stepgraph_server.core.preparing import poll_of
from stepgraph_server.core.reducers import ReducerError
from stepgraph_server.core.routing import (
    FOLLOWED,
    ConditionFailed,
    Routing,
    dead_end,
    route_failure,
    route_goto,
    route_success,
)
from stepgraph_server.core.state import (
    Activation,
    EdgeResult,
    Phase,
    Settled,
)
from stepgraph_server.core.templates import RenderError
from stepgraph_server.core.values import ValueNotReadable
from stepgraph_server.core.view import View, settle

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.turn import Turn


def line_up(turn: Turn) -> None:
    """Put all nodes of the superstep on the agenda; those that can't go on let themselves be passed over.

    Questions come first: people are slow, so they should not wait for what nodes compute.
    """
    activations = turn.state.activations.values()
    if turn.state.spawned:
        # Most of ten thousand wait for their one task, which is told fastest.
        turn.agenda.extend(
            [
                each
                for each in turn.state.spawned.values()
                if (not each.outstanding or each.program is not None) and is_ready(each)
            ]
        )
    if len(activations) == 1:
        turn.agenda.extend(activations)
        return
    asking = [each for each in activations if interrupts.has_to_ask(each)]
    turn.agenda.extend(asking)
    turn.agenda.extend(
        [each for each in activations if each not in asking] if asking else activations
    )


def _ask(turn: Turn, activation: Activation) -> None:
    view = View(turn.state, activation.carried, activation.delta, turn.work)
    try:
        tool = tool_question(poll_of(turn.state, activation, 0, turn))
        if isinstance(tool, Fail):
            fail_node(turn, activation, tool.failure)
            return
        interrupts.ask(turn, activation, view, tool)
    except (RenderError, ValueNotReadable) as error:
        fail_node(
            turn,
            activation,
            failure("TEMPLATE_FAILED", f"the question: {error}", source=activation.node.id),
        )


def advance(turn: Turn, activation: Activation) -> None:
    """Let an activation go on as far as it can without waiting."""
    state, node = turn.state, activation.node
    if state.stopping is not None or state.final:
        return
    if activation.program is None:
        if activation.outstanding:
            return
    elif not is_ready(activation):
        # Without this, those that wait would use up the share of those behind them, decision after decision.
        return
    if activation.phase is Phase.RUNNING:
        turn.work.begin_node(len(node.edges))
        if activation.call is not None and _refuses_call(turn, activation):
            return
        if node.asks and not activation.question_id:
            _ask(turn, activation)
        else:
            _act(turn, activation)
    elif activation.phase is Phase.ROUTING:
        turn.work.begin_node(len(node.edges))
        _finish_routing(turn, activation)


def _refuses_call(turn: Turn, activation: Activation) -> bool:
    """Whether the call that a node answers makes no sense; the model is told, and the node has ended."""
    done = answering.refusal(turn.state, activation)
    if done is None:
        return False
    complete_node(turn, activation, done)
    return True


def _act(turn: Turn, activation: Activation) -> None:
    if activation.answer is not None and approvals.said_no(activation.answer):
        _act_on_refusal(turn, activation)
        return
    if activation.node.programmed:
        _run_program(turn, activation)
        return
    while True:
        step = poll_action(poll_of(turn.state, activation, activation.turn + 1, turn))
        match step:
            case Await():
                if not _await_effects(turn, activation, step):
                    return
            case Suspend():
                suspending.suspend(turn, activation, step.wanted)
                return
            case Done():
                complete_node(turn, activation, step)
                return
            case Fail():
                fail_node(turn, activation, step.failure)
                return
            case _:
                assert_never(step)


def _act_on_refusal(turn: Turn, activation: Activation) -> None:
    """Do what is left to do where a person said no before the action."""
    assert activation.answer is not None
    asks_only = activation.node.action_kind == "human_approval"
    if activation.parent is None or (asks_only and activation.answer.HasField("revise")):
        complete_node(turn, activation, unanswered_calls.refused(turn.state, activation))
    else:
        fail_node(turn, activation, _refusal(activation))


def _run_program(turn: Turn, activation: Activation) -> None:
    while True:
        match polling.go_on(turn, activation):
            case Done() as done:
                # What EACH left behind is not waited for.
                tasks.cancel_within(turn, activation, "its program is done")
                complete_node(turn, activation, done)
                return
            case Fail() as fail:
                fail_node(turn, activation, fail.failure)
                return
            case Activation() as child:
                advance(turn, child)
                if turn.has_had_its_share(turn.world.limits):
                    turn.agenda.append(activation)
                    return
            case None:
                return
            case never:
                assert_never(never)


def is_ready(activation: Activation) -> bool:
    """Whether an activation goes on by itself when it gets a turn."""
    if activation.phase is Phase.RUNNING and activation.spawn is not None:
        return activation.spawn.decided or activation.spawn.can_start
    if activation.phase is Phase.RUNNING and activation.program is not None:
        return activation.program.can_go_on
    return activation.outstanding == 0 and activation.phase in (Phase.RUNNING, Phase.ROUTING)


def _await_effects(turn: Turn, activation: Activation, step: Await) -> bool:
    """Schedule the effects; return whether all were answered at once, so that the action can be polled again."""
    if turn.state.token_limit and any(
        isinstance(effect, Child) or (isinstance(effect, Effect) and effect.spends_tokens)
        for effect in step.effects
    ):
        spent = budget_failure(turn.state, activation)
        if spent is not None:
            fail_node(turn, activation, spent)
            return False
    next_turn = activation.turn + 1
    for index, effect in enumerate(step.effects):
        if isinstance(effect, Effect):
            scheduling.schedule(turn, activation, effect, next_turn, index)
        elif isinstance(effect, Pause):
            end = effect.until if effect.until is not None else after(turn.now, effect.span)
            scheduling.schedule_sleep(turn, activation, effect.label, end, next_turn, index)
        elif isinstance(effect, Child):
            scheduling.schedule_child(turn, activation, effect, next_turn, index)
        else:
            task_id = f"{activation.id}/t{next_turn}/e{index}"
            fact = event_pb2.TaskCompleted(
                task_id=task_id, result=effect.result, call_id=effect.call_id
            )
            turn.emit("task_completed", fact)
    return activation.outstanding == 0


def complete_node(turn: Turn, activation: Activation, done: Done) -> None:
    """End a node well, or fail it if what it writes or its conditions can't be taken."""
    if activation.parent is not None:
        _complete_spawned(turn, activation, done)
        return
    state = turn.state
    full = done if activation.call is None else answering.under_call(state, activation, done)
    if activation.answer is not None:
        full = with_answer(activation, full)
    try:
        carried, delta = settle(state, activation, full)
    except ReducerError as error:
        fail_node(turn, activation, failure("REDUCER_TYPE", str(error), source=activation.node.id))
        return
    event = turn.next_event()
    fact = event.node_completed
    fact.activation_id = activation.id
    fact.node_id = activation.node.id
    if activation.node.action_kind not in DERIVED and not approvals.said_no(activation.answer):
        too_large = _too_large(turn, activation, done)
        if too_large is not None:
            fail_node(turn, activation, too_large)
            return
        _record_done(fact, done)
    try:
        routing = (
            route_goto(activation, done.target)
            if done.target
            else route_success(state, activation, carried, delta, turn.work)
        )
    except ConditionFailed as error:
        fact.edges_pending = True
        activation.settled = Settled(carried, delta)
        turn.record(event)
        fail_node(turn, activation, error.failure)
        return
    edges = fact.edges
    for edge_id, verdict in routing.edges:
        edges.add(edge_id=edge_id, verdict=verdict)
    if routing.undecided:
        fact.edges_pending = True
    activation.settled = Settled(carried, delta, routing.edges)
    turn.record(event)
    if routing.undecided or routing.refused or routing.dead_end or activation.node.terminal:
        _after_routing(turn, activation, routing)


def _complete_spawned(turn: Turn, child: Activation, done: Done) -> None:
    """End spawned work: it has a value, and neither writes nor edges. A tool that reports trouble has not succeeded."""
    if done.error is not None:
        fail_node(turn, child, done.error)
    else:
        spawning.complete(turn, child, value_of(child, done))


def value_of(child: Activation, done: Done) -> value_pb2.Value:
    """Return the value of spawned work that has ended well."""
    if child.node.action_kind == "human_approval":
        return spawning.answered(child)
    return done.value if done.value is not None else value_pb2.Value()


def _after_routing(turn: Turn, activation: Activation, routing: Routing) -> None:
    """Do what follows from a node's edges at once: ask executors about conditions, or end the run."""
    for edge in routing.undecided:
        scheduling.schedule_condition(turn, activation, edge.id, edge.condition.name)  # type: ignore[union-attr]  # custom edges only
    if routing.refused:
        refuse(turn, activation)
    elif routing.dead_end:
        lifecycle.fail(
            turn, dead_end(turn.state, activation.node, routing.edges), node_id=activation.node.id
        )
    elif activation.node.terminal:
        lifecycle.complete(turn, state_pb2.STOP_REASON_TERMINAL_REACHED, activation.node.id)


def _too_large(turn: Turn, activation: Activation, done: Done) -> failure_pb2.Failure | None:
    """Count what a node itself wrote, which its event must hold; return why that is too much."""
    sizes = [(name, value.ByteSize()) for name, value in done.writes if value is not None]
    total = sum(size for _, size in sizes) + sum(each.ByteSize() for each in done.messages)
    turn.bytes += total
    limits, node = turn.world.limits, activation.node.id
    name, largest = max(sizes, key=lambda each: each[1], default=("", 0))
    if largest > limits.max_inline_value_bytes + _VALUE_FRAME_BYTES:
        text = f"{name} has {largest} bytes, of at most {limits.max_inline_value_bytes}; keep the part that is needed"
    elif total > limits.max_bytes_per_decision:
        text = f"the node writes {total} bytes, of at most {limits.max_bytes_per_decision}; spread them over several nodes"
    else:
        return None
    return failure("PAYLOAD_TOO_LARGE", text, source=node)


#: What a Value adds around its text: a tag and a length.
_VALUE_FRAME_BYTES: Final = 16


def with_answer(activation: Activation, done: Done) -> Done:
    """Return what an action ended with, together with what the answer to the node's question leaves."""
    answer = activation.answer
    if answer is None:
        return done
    said = approvals.message(answer)
    return Done(
        value=done.value,
        messages=done.messages if said is None else (said, *done.messages),
        writes=(*approvals.writes(activation.node.id, answer), *done.writes),
        decision=done.decision,
        decides=done.decides,
        paradigm=done.paradigm,
        error=done.error,
        notes=done.notes,
        target=done.target,
        handed=done.handed,
    )


def _record_done(fact: event_pb2.NodeCompleted, done: Done) -> None:
    update = fact.update
    for name, value in done.writes:
        if value is None:
            update.delete_variables.append(name)
        else:
            update.variables[name].CopyFrom(value)
    update.messages.extend(done.messages)
    if done.value is not None:
        fact.value.CopyFrom(done.value)


def _finish_routing(turn: Turn, activation: Activation) -> None:
    state = turn.state
    try:
        routing = route_success(state, activation, activation.carried, activation.delta, turn.work)
    except ConditionFailed as error:
        fail_node(turn, activation, error.failure)
        return
    fact = event_pb2.EdgesEvaluated(activation_id=activation.id, edges=_outcomes(routing.edges))
    turn.emit("edges_evaluated", fact)
    if routing.dead_end:
        lifecycle.fail(
            turn, dead_end(state, activation.node, routing.edges), node_id=activation.node.id
        )


def _outcomes(edges: tuple[EdgeResult, ...]) -> list[event_pb2.EdgeOutcome]:
    return [event_pb2.EdgeOutcome(edge_id=edge_id, verdict=verdict) for edge_id, verdict in edges]


def refuse(turn: Turn, activation: Activation) -> None:
    """End the run because a person said no and no edge takes that up."""
    lifecycle.cancel(turn, _refusal(activation), node_id=activation.node.id)


def _refusal(activation: Activation) -> failure_pb2.Failure:
    assert activation.answer is not None
    said = approvals.no_text(activation.answer)
    word = "aborted" if activation.answer.HasField("abort") else "asked for changes"
    message = f"{activation.node.id!r}: a person {word}" + (f": {said}" if said else "")
    return failure("ABORTED_BY_PERSON", message, source=activation.node.id)


def fail_node(turn: Turn, activation: Activation, why: failure_pb2.Failure) -> None:
    """End a node with a failure; without an edge that takes it up, the run ends."""
    node = activation.node
    tasks.cancel_within(turn, activation, f"{node.id} has failed")
    if activation.parent is not None:
        spawning.fail(turn, activation, why)
        return
    edges = route_failure(activation, why, turn.state)
    fact = event_pb2.NodeFailed(
        activation_id=activation.id, node_id=node.id, failure=why, edges=_outcomes(edges)
    )
    turn.emit("node_failed", fact)
    if all(edge.verdict != FOLLOWED for edge in edges):
        lifecycle.fail(turn, why, node_id=node.id)


__all__ = [
    "advance",
    "complete_node",
    "fail_node",
    "is_ready",
    "line_up",
    "value_of",
    "with_answer",
]
