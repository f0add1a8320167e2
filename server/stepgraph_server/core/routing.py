"""Which edges of a node are followed when it ends.

Rules: conditions read the node's own view, once; what they gave is recorded and never evaluated again. A condition that
can't be evaluated is a failure of the node, never quietly false. Nothing here emits or changes a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from stepgraph.v1 import edge_condition_pb2, event_pb2
from stepgraph_server.core import approvals
from stepgraph_server.core.expressions import ExpressionError
from stepgraph_server.core.failures import failure
from stepgraph_server.core.state import Delta, EdgeResult
from stepgraph_server.core.values import ValueNotReadable, equals_text
from stepgraph_server.core.view import View

if TYPE_CHECKING:
    from stepgraph.v1 import failure_pb2
    from stepgraph_server.core.expressions import Expression
    from stepgraph_server.core.graph import CompiledEdge, CompiledNode, Condition, ConditionKind
    from stepgraph_server.core.state import Activation, Carried, RunState
    from stepgraph_server.core.work import Work

FOLLOWED = event_pb2.EDGE_VERDICT_FOLLOWED
NOT_HELD = event_pb2.EDGE_VERDICT_NOT_HELD
SPENT = event_pb2.EDGE_VERDICT_SPENT
NOT_CONSIDERED = event_pb2.EDGE_VERDICT_NOT_CONSIDERED


class ConditionFailed(Exception):  # named for what happened; it never leaves this module's callers
    """A condition could not be evaluated; `failure` says which and why."""

    def __init__(self, why: failure_pb2.Failure) -> None:
        super().__init__(why.message)
        self.failure = why


@dataclass(slots=True)
class Routing:
    """What became of a node's edges."""

    edges: tuple[EdgeResult, ...]
    #: Edges whose condition an executor must decide first; then `edges` is empty.
    undecided: tuple[CompiledEdge, ...] = ()
    #: The node succeeded and none of its edges holds: the run can't go on.
    dead_end: bool = False
    #: A person said no, and no edge takes that up.
    refused: bool = False


def route_success(
    state: RunState, activation: Activation, carried: Carried, delta: Delta, work: Work
) -> Routing:
    """Return what becomes of the edges of a node that ended well with this view. Raises ConditionFailed."""
    node = activation.node
    if activation.answer is not None and approvals.said_no(activation.answer):
        return _route_refusal(state, activation, carried, delta, work)
    if node.terminal:
        return Routing(edges=())
    if len(node.edges) == 1:
        (only,) = node.edges
        if (
            not only.condition_kind and not only.max_traversals
        ):  # nothing to look at: a step in a row
            return Routing((EdgeResult(only.id, FOLLOWED),))
    if node.custom_edges:
        undecided = [
            edge
            for edge in node.custom_edges
            if not spent(state, edge) and edge.id not in activation.conditions
        ]
        if undecided:
            return Routing(edges=(), undecided=tuple(undecided))
    edges, held = _evaluate(state, activation, View(state, carried, delta, work))
    if held:
        return Routing(edges)
    dead_end = any(edge.condition_kind != "error_occurred" for edge in node.edges)
    return Routing(edges, dead_end=dead_end)


def route_goto(activation: Activation, target: str) -> Routing:
    """Return what becomes of the edges of a node that goes to another one: that handoff is followed, and nothing else."""
    node = activation.node
    edges = [EdgeResult(edge.id, NOT_CONSIDERED) for edge in node.edges]
    edges.append(EdgeResult(node.handoffs[target].id, FOLLOWED))
    return Routing(edges=tuple(edges))


def route_failure(
    activation: Activation, error: failure_pb2.Failure, state: RunState
) -> tuple[EdgeResult, ...]:
    """Return what becomes of the edges of a node that failed: only ErrorOccurred edges whose codes match are followed.

    After a refusal not even these are considered: they don't read the answer, and a refusal must not be overlooked
    because a condition that reads it can't be evaluated. The edges of a terminal node are not looked at.
    """
    if activation.node.terminal:
        return ()
    refused = approvals.said_no(activation.answer)
    outcomes = []
    for edge in activation.node.edges:
        if edge.condition_kind != "error_occurred" or refused:
            verdict = NOT_CONSIDERED
        elif spent(state, edge):
            verdict = SPENT
        else:
            verdict = FOLLOWED if _matches(edge, error) else NOT_HELD
        outcomes.append(EdgeResult(edge.id, verdict))
    return tuple(outcomes)


def spent(state: RunState, edge: CompiledEdge) -> bool:
    """Whether an edge was followed as often as it may be."""
    return edge.max_traversals > 0 and state.traversals.get(edge.id, 0) >= edge.max_traversals


def _route_refusal(
    state: RunState, activation: Activation, carried: Carried, delta: Delta, work: Work
) -> Routing:
    """Route after Revise or Abort: only edges that read the answer are considered, so that a refusal is never overlooked."""
    node = activation.node
    if node.terminal:
        return Routing(edges=(), refused=True)
    considered = [
        edge for edge in node.edges if edge.reads_approval and edge.condition_kind != "otherwise"
    ]
    view = View(state, carried, delta, work)
    verdicts = {edge.id: _verdict(state, activation, view, edge) for edge in considered}
    held = any(verdict == FOLLOWED for verdict in verdicts.values())
    for edge in node.edges:
        if edge.condition_kind == "otherwise" and not _otherwise_if_proceeded(
            state, activation, carried, delta, work
        ):
            verdicts[edge.id] = SPENT if spent(state, edge) else (NOT_HELD if held else FOLLOWED)
    edges = tuple(EdgeResult(edge.id, verdicts.get(edge.id, NOT_CONSIDERED)) for edge in node.edges)
    return Routing(edges=edges, refused=all(edge.verdict != FOLLOWED for edge in edges))


def _otherwise_if_proceeded(
    state: RunState, activation: Activation, carried: Carried, delta: Delta, work: Work
) -> bool:
    """Whether an Otherwise would be followed had the answer been Proceed. If that can't be told, yes: then it is not taken."""
    node = activation.node
    if node.custom_edges:
        return True
    proceeded = Delta([], dict(delta.overlay), delta.messages, delta.terminate)
    for name, value in approvals.proceed_writes(node.id):
        proceeded.overlay[name] = value
    try:
        edges, _ = _evaluate(state, activation, View(state, carried, proceeded, work))
    except ConditionFailed:
        return True
    verdicts = dict(edges)
    return any(
        verdicts[edge.id] == FOLLOWED for edge in node.edges if edge.condition_kind == "otherwise"
    )


def _evaluate(
    state: RunState, activation: Activation, view: View
) -> tuple[tuple[EdgeResult, ...], bool]:
    """Return what becomes of each edge of the node, and whether any is followed."""
    results: list[EdgeResult] = []
    held = waiting = False
    for edge in activation.node.edges:
        if edge.condition_kind == "otherwise":
            # Looked at when all others are known.
            waiting = True
            verdict = NOT_HELD
        else:
            verdict = _verdict(state, activation, view, edge)
            held = held or verdict == FOLLOWED
        results.append(EdgeResult(edge.id, verdict))
    if not waiting:
        return tuple(results), held
    rest = NOT_HELD if held else FOLLOWED
    for index, edge in enumerate(activation.node.edges):
        if edge.condition_kind == "otherwise":
            verdict = SPENT if spent(state, edge) else rest
            held = held or verdict == FOLLOWED
            results[index] = EdgeResult(edge.id, verdict)
    return tuple(results), held


def _verdict(
    state: RunState, activation: Activation, view: View, edge: CompiledEdge
) -> event_pb2.EdgeVerdict.ValueType:
    if edge.max_traversals and spent(state, edge):
        return SPENT
    if not edge.condition_kind:
        return FOLLOWED
    if edge.condition_kind == "custom":
        decided = activation.conditions[edge.id]
        if not isinstance(decided, bool):
            raise ConditionFailed(_custom_failed(edge, decided))
        return FOLLOWED if decided else NOT_HELD
    try:
        holds = condition_holds(
            edge.condition_kind,
            edge.condition,
            edge.expression,
            view,
            traversals=state.traversals.get(edge.id, 0),
        )
    except (ExpressionError, ValueNotReadable) as error:
        raise ConditionFailed(_expression_failed(edge, error)) from error
    return FOLLOWED if holds else NOT_HELD


def condition_holds(  # noqa: C901  # one case per condition: the table of what they mean
    kind: ConditionKind,
    condition: Condition | None,
    expression: Expression | None,
    view: View,
    *,
    traversals: int = 0,
) -> bool:
    """Evaluate a condition other than Custom and Otherwise. Raises ExpressionError, ValueNotReadable."""
    carried = view.carried
    decision = carried.decision.WhichOneof("kind") if carried.decision is not None else None
    match kind:
        case "":
            return True
        case "has_tool_calls":
            return decision == "tool_calls"
        case "is_final_answer":
            return decision == "direct_answer"
        case "requests_delegation":
            return decision == "delegate"
        case "error_occurred":
            assert isinstance(condition, edge_condition_pb2.EdgeCondition.ErrorOccurred)
            error = carried.last_error
            return error is not None and (not condition.codes or error.code in condition.codes)
        case "state_equals":
            assert isinstance(condition, edge_condition_pb2.EdgeCondition.StateEquals)
            return equals_text(view.variable(condition.variable), condition.value)
        case "paradigm_equals":
            assert isinstance(condition, edge_condition_pb2.EdgeCondition.ParadigmEquals)
            return carried.paradigm == condition.paradigm
        case "iteration_exceeds":
            assert isinstance(condition, edge_condition_pb2.EdgeCondition.IterationExceeds)
            return view.iterations > condition.count
        case "expression":
            assert expression is not None
            return view.evaluate_bool(expression, traversals=traversals)
        case "custom" | "otherwise":
            raise AssertionError(kind)
        case _:
            assert_never(kind)


def _matches(edge: CompiledEdge, error: failure_pb2.Failure) -> bool:
    condition = edge.condition
    assert isinstance(condition, edge_condition_pb2.EdgeCondition.ErrorOccurred)
    return not condition.codes or error.code in condition.codes


def _custom_failed(edge: CompiledEdge, why: failure_pb2.Failure | None) -> failure_pb2.Failure:
    assert isinstance(edge.condition, edge_condition_pb2.EdgeCondition.Custom)
    text = f": {why.message}" if why is not None else ""
    return failure(
        "CONDITION_FAILED",
        f"the condition {edge.condition.name!r} of edge {edge.id!r} could not be decided{text}",
        source=edge.id,
        details={"edge": edge.id, "condition": edge.condition.name},
        causes=[] if why is None else [why],
    )


def _expression_failed(edge: CompiledEdge, error: Exception) -> failure_pb2.Failure:
    source = edge.expression.source if edge.expression is not None else edge.condition_kind
    return failure(
        "EXPRESSION_FAILED",
        f"the condition of edge {edge.id!r} could not be evaluated: {error}",
        source=edge.id,
        details={"edge": edge.id, "expression": source[:500]},
    )


def dead_end(
    state: RunState, node: CompiledNode, edges: tuple[EdgeResult, ...]
) -> failure_pb2.Failure:
    """Return the failure of a node that succeeded and whose edges all do not hold, with each one's result."""
    names = {NOT_HELD: "does not hold", SPENT: "is spent", NOT_CONSIDERED: "was not considered"}
    details = {}
    for edge in edges[:30]:
        compiled = state.graph.edges_by_id[edge.edge_id]
        details[edge.edge_id] = f"{describe(compiled)}: {names.get(edge.verdict, 'unknown')}"
    listed = "; ".join(f"{name}: {text}" for name, text in details.items())
    return failure(
        "DEAD_END",
        f"no outgoing edge of {node.id!r} holds ({listed}); add an edge with the condition Otherwise",
        source=node.id,
        details=details,
    )


def describe(edge: CompiledEdge) -> str:
    """Return an edge's condition for people, without values of the state."""
    condition = edge.condition
    match condition:
        case edge_condition_pb2.EdgeCondition.StateEquals():
            return f"{condition.variable} == {condition.value!r}"
        case edge_condition_pb2.EdgeCondition.Expression():
            return condition.cel
        case edge_condition_pb2.EdgeCondition.Custom():
            return f"custom {condition.name}"
        case edge_condition_pb2.EdgeCondition.ParadigmEquals():
            return f"paradigm == {condition.paradigm!r}"
        case edge_condition_pb2.EdgeCondition.IterationExceeds():
            return f"iterations > {condition.count}"
        case _:
            return edge.condition_kind or "always"


__all__ = [
    "ConditionFailed",
    "Routing",
    "condition_holds",
    "dead_end",
    "describe",
    "route_failure",
    "route_goto",
    "route_success",
    "spent",
]
