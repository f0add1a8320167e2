"""A graph as the walk needs it: everything looked up, resolved and compiled once, when the graph is registered.

Rules: what is here never changes and holds no state of a run. A compiled graph exists only if the definition has no
problem at all, so the walk never meets an unknown name, a missing action or a broken expression. Sets of nodes are `int`
bit masks over the nodes in bytewise order of their ids, which is the order that the walk merges in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stepgraph_server.core.policies import Limits, RetryPolicy
from stepgraph_server.core.topology import members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepgraph.v1 import graph_pb2
    from stepgraph.v1.edge_condition_pb2 import EdgeCondition
    from stepgraph.v1.graph_pb2 import NodeAction
    from stepgraph_server.core.expressions import Expression
    from stepgraph_server.core.instants import Span

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
        edges: The edges that leave it, without handoffs, in the order of the definition.
        error_edges: Those of `edges` with ErrorOccurred.
        handoffs: The handoff edges that leave it, by target.
        reach: The nodes that can be reached from it over one edge or more, handoffs included.
        retry: How its tasks are tried.
        limits: How long its tasks may take.
        selector: Labels that its executors must bear, by name.
        append_none: Its messages stay out of the conversation.
        works: It clears `last_error` when it ends well.
        check: The condition of a ConditionCheck; None for other actions.
        expressions: The expressions of an Assign by variable, in bytewise order; empty for other actions.
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
    edges: tuple[CompiledEdge, ...]
    error_edges: tuple[CompiledEdge, ...]
    handoffs: Mapping[str, CompiledEdge]
    reach: int
    retry: RetryPolicy
    limits: Limits
    selector: tuple[tuple[str, str], ...]
    append_none: bool
    works: bool
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
        switch_paradigms: The paradigms that a model that sees tools may switch to; empty if no node carries that out.
        default_model: The model of LlmInfer nodes that name none; a template.
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
    switch_paradigms: tuple[str, ...]
    default_model: str

    def members(self, mask: int) -> Iterator[CompiledNode]:
        """Return the nodes of a set, in bytewise order of their ids."""
        return (self.ordered[index] for index in members(mask))


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDefaults:
    """What the server gives a graph that says nothing.

    Attributes:
        retry: How tasks are tried.
        limits: How long tasks may take.
        max_iterations: The most supersteps of a run.
    """

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    limits: Limits = field(default_factory=Limits)
    max_iterations: int = 50
