"""Supersteps: the barrier, the merge, and what runs next.

Rules: a superstep is a barrier. Nothing merges and no target is entered before all its nodes have ended. Joins that wait
stand outside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, state_pb2
from stepgraph_server.core import answering, lifecycle, merge, steps
from stepgraph_server.core.failures import failure
from stepgraph_server.core.joins import GotoConflict, plan_next
from stepgraph_server.core.state import NOTHING_WRITTEN, Activation, Phase, carry

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.graph import CompiledNode
    from stepgraph_server.core.state import Carried, Plan, RunState
    from stepgraph_server.core.turn import Turn


def barrier_reached(state: RunState) -> bool:
    """Whether all nodes of the superstep have ended."""
    # A loop, because it is asked twice per node and a generator would cost more than the question.
    for activation in state.activations.values():  # noqa: SIM110
        if activation.phase is not Phase.ENDED:
            return False
    return True


def go_on(turn: Turn) -> None:
    """End the superstep that has reached its barrier, and start the next one or end the run."""
    state = turn.state
    # A lone node has nobody to be in conflict with: the common path.
    if len(state.activations) > 1 and not _come_together(turn):
        return
    if merge.terminates(state):
        lifecycle.complete(turn, state_pb2.STOP_REASON_SHOULD_TERMINATE)
        return
    try:
        plan = plan_next(state)
    except GotoConflict as conflict:
        lifecycle.fail(turn, conflict.failure)
        return
    if not plan.frontier:
        _record_skips(turn, plan)
        lifecycle.complete(turn, state_pb2.STOP_REASON_FRONTIER_EMPTY)
        return
    if state.iterations >= state.max_iterations:
        lifecycle.fail(turn, _cap_failure(state, plan))
        return
    spent = _budget_spent(state, plan)
    if spent is not None:
        lifecycle.fail(turn, spent)
        return
    _record_skips(turn, plan)
    state.plan = plan
    event = turn.next_event()
    fact = event.superstep_started
    fact.superstep = state.iterations + 1
    for node, _ in plan.frontier:
        fact.nodes.append(node.id)
    turn.supersteps += 1
    turn.record(event)
    steps.line_up(turn)


def _come_together(turn: Turn) -> bool:
    """Say which writes of parallel nodes win; if they can't come together, end the run and return False."""
    state = turn.state
    conflict = merge.conflict(state)
    if conflict is not None:
        lifecycle.fail(turn, conflict)
        return False
    for name, nodes in list(merge.overwritten(state)):
        turn.emit(
            "variable_overwritten", event_pb2.VariableOverwritten(variable=name, node_ids=nodes)
        )
    return True


def _cap_failure(state: RunState, plan: Plan) -> failure_pb2.Failure:
    waiting = ", ".join(node.id for node, _ in plan.frontier)
    return failure(
        "MAX_ITERATIONS",
        f"the run has started {state.iterations} supersteps and may start {state.max_iterations}; "
        f"{waiting} did not start. Raise max_iterations, or cap the loop with max_traversals",
        details={"cap": str(state.max_iterations), "iterations": str(state.iterations)},
    )


def _budget_spent(state: RunState, plan: Plan) -> failure_pb2.Failure | None:
    """Return why a child run may not go on: its parent's budget is spent. A root's nodes are each asked for themselves."""
    if state.parent is None or state.budget_remaining is None or state.budget_remaining > 0:
        return None
    waiting = ", ".join(node.id for node, _ in plan.frontier)
    return failure(
        "TOKEN_BUDGET_SPENT",
        f"{state.tokens.used} of {state.token_limit} tokens are used, which is what the parent had left, so {waiting} did not "
        "start; start the root with a larger token_limit",
        details={"token_limit": str(state.token_limit), "used": str(state.tokens.used)},
    )


def _record_skips(turn: Turn, plan: Plan) -> None:
    state = turn.state
    displaced = 0
    for node in plan.displaced:
        displaced |= node.bit
        reason = event_pb2.SKIP_REASON_TERMINAL_REACHED
        turn.emit("node_skipped", event_pb2.NodeSkipped(node_id=node.id, reason=reason))
    # Bit masks make the common case, in which nothing became unreachable, a matter of two integers.
    lost = state.possible & ~plan.possible & ~state.entered & ~displaced
    if lost:
        for node in state.graph.members(lost):
            unreachable = event_pb2.NodeSkipped(
                node_id=node.id, reason=event_pb2.SKIP_REASON_UNREACHABLE
            )
            turn.emit("node_skipped", unreachable)


def apply_superstep_started(state: RunState, event: event_pb2.RunEvent) -> None:
    """Merge the superstep before, and enter the nodes of this one."""
    fact = event.superstep_started
    plan, state.plan = state.plan, None
    if plan is None:
        plan = _replayed_plan(state, fact)
    merge.merge_ended(state)
    state.arrivals = plan.arrivals
    number = state.iterations = fact.superstep
    state.possible = plan.possible
    state.budget_at_start = state.budget_remaining if state.token_limit else None
    state.activations = {}
    for node, carried in plan.frontier:
        activation = _enter(node, carried, number)
        if node.answers:
            answering.begin(state, activation)
        state.activations[activation.id] = activation
        state.entered |= node.bit


def _replayed_plan(state: RunState, fact: event_pb2.SuperstepStarted) -> Plan:
    plan = plan_next(state)
    planned = [node.id for node, _ in plan.frontier]
    if planned != list(fact.nodes):
        # The rules and the journal disagree: a fault, or a journal of other rules. Guessing would lose work.
        message = f"superstep {fact.superstep} should run {planned}, not {list(fact.nodes)}"
        raise ValueError(message)
    return plan


def _enter(node: CompiledNode, carried: Carried, superstep: int) -> Activation:
    if carried.handed is not None and node.action_kind != "step":
        # A step program gets it as its input; any other node as the last result.
        carried = carry(carried, last_result=carried.handed, handed=None)
    return Activation(f"{superstep}/{node.id}", node, superstep, carried, carried, NOTHING_WRITTEN)
