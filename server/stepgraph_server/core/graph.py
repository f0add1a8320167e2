"""A graph as the walk needs it: everything looked up, resolved and compiled once, when the graph is registered.

Rules: what is here never changes and holds no state of a run. A compiled graph exists only if the definition has no
problem at all, so the walk never meets an unknown name, a missing action or a broken expression. Sets of nodes are `int`
bit masks over the nodes in bytewise order of their ids, which is the order that the walk merges in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stepgraph.v1 import graph_pb2
from stepgraph_server.core import canonical, validation
from stepgraph_server.core.condition_text import parse_condition
from stepgraph_server.core.errors import GraphInvalid
from stepgraph_server.core.expressions import Expression, reads
from stepgraph_server.core.instants import from_duration
from stepgraph_server.core.names import edge_ids, is_approval
from stepgraph_server.core.policies import (
    GraphDefaults,
    Limits,
    RetryPolicy,
    resolve_limits,
    resolve_retry,
)
from stepgraph_server.core.references import Reference, references_of
from stepgraph_server.core.topology import members, reach_masks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepgraph.v1 import llm_pb2
    from stepgraph.v1.edge_condition_pb2 import EdgeCondition
    from stepgraph.v1.graph_pb2 import NodeAction
    from stepgraph_server.core.instants import Span
    from stepgraph_server.core.validation import Findings

    Condition: TypeAlias = (
        EdgeCondition.HasToolCalls
        | EdgeCondition.IsFinalAnswer
        | EdgeCondition.RequestsDelegation
        | EdgeCondition.ErrorOccurred
        | EdgeCondition.StateEquals
        | EdgeCondition.Custom
        | EdgeCondition.ParadigmEquals
        | EdgeCondition.IterationExceeds
        | EdgeCondition.Expression
        | EdgeCondition.Otherwise
    )
    Action: TypeAlias = (
        NodeAction.LlmInfer
        | NodeAction.ToolCall
        | NodeAction.Delegate
        | NodeAction.HumanApproval
        | NodeAction.ConditionCheck
        | NodeAction.SwitchParadigm
        | NodeAction.RunRequestedTools
        | NodeAction.Assign
        | NodeAction.Step
        | NodeAction.Map
        | NodeAction.Subgraph
        | NodeAction.Sleep
        | NodeAction.WaitSignal
    )

ConditionKind: TypeAlias = Literal[
    "",
    "has_tool_calls",
    "is_final_answer",
    "requests_delegation",
    "error_occurred",
    "state_equals",
    "custom",
    "paradigm_equals",
    "iteration_exceeds",
    "expression",
    "otherwise",
]
ActionKind: TypeAlias = Literal[
    "llm_infer",
    "tool_call",
    "delegate",
    "human_approval",
    "condition_check",
    "switch_paradigm",
    "run_requested_tools",
    "assign",
    "step",
    "map",
    "subgraph",
    "sleep",
    "wait_signal",
]

#: Actions that don't clear `last_error`: they decide, wait or write, but do no work that could mend it.
_NOT_WORKING: Final[frozenset[ActionKind]] = frozenset(
    {"condition_check", "switch_paradigm", "human_approval", "sleep", "wait_signal", "assign"}
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledEdge:
    """An edge.

    Attributes:
        id: Its own id, or the one that the server made of its ends.
        source: The id of the node that it leaves.
        target: The id of the node that it enters.
        index: Its place among all edges of the graph.
        condition_kind: The variant of its condition; empty for an edge without one, and for Always.
        condition: The variant itself; None where the kind is empty.
        max_traversals: How often a run may follow it; 0 is without end.
        handoff: Only a Goto follows it.
        reads_approval: Its condition names the answer of a question, so it is considered after Revise and Abort. Of an
            Otherwise this says nothing.
        expression: What `condition` holds, compiled; None for other kinds.
    """

    id: str
    source: str
    target: str
    index: int
    condition_kind: ConditionKind
    condition: Condition | None
    max_traversals: int
    handoff: bool
    reads_approval: bool
    expression: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledCheck:
    """The condition of a ConditionCheck, which reads like the one of an edge.

    Attributes:
        kind: The variant that its text stands for.
        condition: That variant.
        expression: Its expression, compiled; None for other kinds.
    """

    kind: ConditionKind
    condition: Condition
    expression: Expression | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledNode:
    """A node.

    Attributes:
        id: Its id.
        index: Its place in bytewise order of ids.
        bit: `1 << index`.
        action_kind: The variant of its action.
        action: The variant itself.
        definition: The node as it was registered.
        terminal: A run that reaches it is COMPLETED with it.
        join_all: It waits until every branch that can still reach it has arrived.
        interrupt: A person is asked before its action runs.
        asks: That, or its action is to ask.
        answers: The tool of the graph that it answers; "" if it answers none.
        edges: The edges that leave it, without handoffs, in the order of the definition.
        custom_edges: Those of `edges` whose condition an executor decides.
        handoffs: The handoff edges that leave it, by target.
        reach: The nodes that can be reached from it over one edge or more, handoffs included.
        retry: How its tasks are tried.
        limits: How long its tasks may take.
        selector: Labels that its executors must bear, by name.
        append_none: Its messages stay out of the conversation.
        output_variable: The variable that gets its result; empty is none.
        max_concurrency: How many of its tasks may run at once; 0 is all.
        streams: Its model call shows progress, so it has an idle limit.
        works: It clears `last_error` when it ends well.
        programmed: What it does next comes from a reply: a step program's, or the one that the server gives for a Map.
        check: The condition of a ConditionCheck; None for other actions.
        expressions: The expressions of an Assign by variable, in bytewise order, and `items` of a Map; empty for other actions.
    """

    id: str
    index: int
    bit: int
    action_kind: ActionKind
    action: Action
    definition: graph_pb2.GraphNode
    terminal: bool
    join_all: bool
    interrupt: bool
    asks: bool
    answers: str
    edges: tuple[CompiledEdge, ...]
    custom_edges: tuple[CompiledEdge, ...]
    handoffs: Mapping[str, CompiledEdge]
    reach: int
    retry: RetryPolicy
    limits: Limits
    selector: tuple[tuple[str, str], ...]
    append_none: bool
    output_variable: str
    max_concurrency: int
    streams: bool
    works: bool
    programmed: bool
    check: CompiledCheck | None
    expressions: Mapping[str, Expression]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledGraph:
    """A graph without a problem, ready to be walked.

    Attributes:
        definition: The graph as it was registered.
        digest: The digest of the definition.
        name: Its name.
        nodes: Its nodes by id, in the order of `ordered`.
        ordered: Its nodes in bytewise order of their ids.
        edges: Its edges in the order of the definition, so `edges[edge.index]` is `edge`.
        edges_by_id: Its edges by id.
        entry: The node that runs first.
        reducers: How writes to a variable come together; a variable that is not listed is replaced.
        paradigms: Its paradigms by name.
        max_iterations: The most supersteps of a run, the server's default if the graph says nothing.
        time_limit: How long a run may take; None is no limit.
        offers_delegate: A model that sees tools may delegate: some node performs the carried delegation.
        approval_filter: Tools that a person must approve; empty, none.
        tools: Tools that it answers itself, by name.
        switch_paradigms: The paradigms that a model that sees tools may switch to; empty if no node carries that out.
        default_model: The model of LlmInfer nodes that name none; a template.
        references: The graphs that it names, those of the graphs inside it included.
    """

    definition: graph_pb2.StateGraph
    digest: str
    name: str
    nodes: Mapping[str, CompiledNode]
    ordered: tuple[CompiledNode, ...]
    edges: tuple[CompiledEdge, ...]
    edges_by_id: Mapping[str, CompiledEdge]
    entry: CompiledNode
    reducers: Mapping[str, graph_pb2.Reducer.ValueType]
    paradigms: Mapping[str, graph_pb2.Paradigm]
    max_iterations: int
    time_limit: Span | None
    offers_delegate: bool
    approval_filter: llm_pb2.ToolFilter
    tools: Mapping[str, graph_pb2.GraphTool]
    switch_paradigms: tuple[str, ...]
    default_model: str
    references: tuple[Reference, ...]

    def members(self, mask: int) -> Iterator[CompiledNode]:
        """Return the nodes of a set, in bytewise order of their ids."""
        return (self.ordered[index] for index in members(mask))


def check_graph(definition: graph_pb2.StateGraph, defaults: GraphDefaults) -> Findings:
    """Find everything that is wrong, or odd, about a graph. Changes nothing, and never raises for what is in it."""
    return validation.check(definition, defaults).findings


def compile_graph(definition: graph_pb2.StateGraph, defaults: GraphDefaults) -> CompiledGraph:
    """Compile a graph. Its definition must not change afterwards.

    Raises:
        GraphInvalid: It has problems, all of which are listed; warnings don't count.
    """
    checked = validation.check(definition, defaults)
    if checked.findings.problems:
        raise GraphInvalid(checked.findings.problems)
    return _build(definition, defaults, checked.expressions)


def _build(
    definition: graph_pb2.StateGraph,
    defaults: GraphDefaults,
    expressions: Mapping[str, Expression],
) -> CompiledGraph:
    """Compile a definition that has no problem."""
    edges = tuple(
        _compile_edge(index, edge_id, edge, expressions)
        for index, (edge_id, edge) in enumerate(
            zip(edge_ids(definition), definition.edges, strict=True)
        )
    )
    ordered = _compile_nodes(definition, defaults, edges, expressions)
    nodes = {node.id: node for node in ordered}
    actions = [node.action for node in definition.nodes]
    return CompiledGraph(
        definition=definition,
        digest=canonical.digest(definition),
        name=definition.name,
        nodes=nodes,
        ordered=ordered,
        edges=edges,
        edges_by_id={edge.id: edge for edge in edges},
        entry=nodes[definition.entry_point],
        reducers=dict(definition.reducers),
        paradigms=dict(definition.paradigms),
        max_iterations=definition.max_iterations or defaults.max_iterations,
        time_limit=(
            from_duration(definition.time_limit) if definition.HasField("time_limit") else None
        ),
        tools={tool.definition.name: tool for tool in definition.tools},
        approval_filter=definition.approval_filter,
        offers_delegate=any(
            action.HasField("delegate") and not action.delegate.HasField("task_template")
            for action in actions
        ),
        switch_paradigms=(
            tuple(sorted(definition.paradigms))
            if any(
                action.HasField("switch_paradigm") and not action.switch_paradigm.paradigm
                for action in actions
            )
            else ()
        ),
        default_model=definition.default_model,
        references=tuple(references_of(definition)),
    )


# ---- edges -------------------------------------------------------------------------------------


def _compile_edge(
    index: int,
    edge_id: str,
    edge: graph_pb2.GraphEdge,
    expressions: Mapping[str, Expression],
) -> CompiledEdge:
    kind, condition, expression = _compile_condition(edge.condition, expressions)
    return CompiledEdge(
        id=edge_id,
        source=edge.source,
        target=edge.target,
        index=index,
        condition_kind=kind,
        condition=condition,
        max_traversals=edge.max_traversals,
        handoff=edge.handoff,
        reads_approval=_reads_approval(edge.condition, expression),
        expression=expression,
    )


def _compile_condition(
    condition: EdgeCondition, expressions: Mapping[str, Expression]
) -> tuple[ConditionKind, Condition | None, Expression | None]:
    kind = condition.WhichOneof("kind")
    if kind is None or kind == "always":
        return "", None, None
    expression = None
    if kind == "expression":
        expression = _compiled(condition.expression.cel, expressions)
    variant: Condition = getattr(condition, kind)
    return kind, variant, expression


def _compiled(source: str, expressions: Mapping[str, Expression]) -> Expression:
    # What the check compiled is handed over: a graph may have more expressions than the compiler keeps.
    return expressions.get(source) or Expression.compile(source)


def _reads_approval(condition: EdgeCondition, expression: Expression | None) -> bool:
    if expression is not None:
        return reads(expression, is_approval)
    return condition.HasField("state_equals") and is_approval(condition.state_equals.variable)


# ---- nodes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a node stands."""

    index: int
    reach: int
    terminal: bool
    edges: tuple[CompiledEdge, ...]
    handoffs: Mapping[str, CompiledEdge]


def _compile_nodes(
    definition: graph_pb2.StateGraph,
    defaults: GraphDefaults,
    edges: tuple[CompiledEdge, ...],
    expressions: Mapping[str, Expression],
) -> tuple[CompiledNode, ...]:
    # Code points and UTF-8 sort alike, so the order of `str` is the bytewise one.
    ordered = sorted(definition.nodes, key=lambda node: node.id)
    retry = resolve_retry(defaults.retry, definition.retry)
    limits = resolve_limits(defaults.limits, definition.limits)
    places = _places(definition, [node.id for node in ordered], edges)
    return tuple(
        _compile_node(node, place, retry, limits, expressions)
        for node, place in zip(ordered, places, strict=True)
    )


def _places(
    definition: graph_pb2.StateGraph, ids: list[str], edges: tuple[CompiledEdge, ...]
) -> list[_Place]:
    index = {node: number for number, node in enumerate(ids)}
    ends = frozenset(definition.terminal_nodes)
    plain: list[list[CompiledEdge]] = [[] for _ in ids]
    handoffs: list[dict[str, CompiledEdge]] = [{} for _ in ids]
    successors: list[list[int]] = [[] for _ in ids]
    for edge in edges:
        source = index[edge.source]
        if edge.handoff:
            # Of two handoffs to one node, which are warned of, the first counts.
            handoffs[source].setdefault(edge.target, edge)
        else:
            plain[source].append(edge)
        if edge.source not in ends:
            # With a terminal node the run is over: nothing is reached through one, and no join waits for that.
            successors[source].append(index[edge.target])
    reach = reach_masks(successors)
    return [
        _Place(
            index=number,
            reach=reach[number],
            terminal=node in ends,
            edges=tuple(plain[number]),
            handoffs=handoffs[number],
        )
        for node, number in index.items()
    ]


def _compile_node(
    node: graph_pb2.GraphNode,
    place: _Place,
    retry: RetryPolicy,
    limits: Limits,
    expressions: Mapping[str, Expression],
) -> CompiledNode:
    kind = node.action.WhichOneof("kind")
    assert kind is not None, "a node without an action is a problem"
    action: Action = getattr(node.action, kind)
    custom = tuple(edge for edge in place.edges if edge.condition_kind == "custom")
    return CompiledNode(
        id=node.id,
        index=place.index,
        bit=1 << place.index,
        action_kind=kind,
        action=action,
        definition=node,
        terminal=place.terminal,
        join_all=node.join == graph_pb2.NODE_JOIN_ALL,
        interrupt=node.interrupt,
        asks=node.interrupt or kind == "human_approval",
        answers=node.answers,
        edges=place.edges,
        custom_edges=custom,
        handoffs=place.handoffs,
        reach=place.reach,
        retry=resolve_retry(retry, node.retry),
        limits=resolve_limits(limits, node.limits),
        selector=tuple(sorted(node.selector.items())),
        append_none=node.append == graph_pb2.APPEND_MODE_NONE,
        output_variable=node.output_variable,
        max_concurrency=getattr(action, "max_concurrency", 0),
        streams=node.action.llm_infer.use_streaming,
        works=kind not in _NOT_WORKING,
        programmed=kind in ("step", "map"),
        check=_compile_check(node.action, expressions),
        expressions=_compile_expressions(node.action, expressions),
    )


def _compile_expressions(
    action: NodeAction, expressions: Mapping[str, Expression]
) -> dict[str, Expression]:
    if action.HasField("map"):
        return {"items": _compiled(action.map.items, expressions)}
    return {
        variable: _compiled(action.assign.set[variable], expressions)
        for variable in sorted(action.assign.set)
    }


def _compile_check(
    action: NodeAction, expressions: Mapping[str, Expression]
) -> CompiledCheck | None:
    if not action.HasField("condition_check"):
        return None
    kind, condition, expression = _compile_condition(
        parse_condition(action.condition_check.condition), expressions
    )
    assert condition is not None, "a text never stands for Always"
    return CompiledCheck(kind=kind, condition=condition, expression=expression)


__all__ = [
    "ActionKind",
    "CompiledCheck",
    "CompiledEdge",
    "CompiledGraph",
    "CompiledNode",
    "ConditionKind",
    "GraphDefaults",
    "check_graph",
    "compile_graph",
]
