"""The graph builder: a `StateGraph` from Python, one method per kind of node.

    g = Graph("react", default_model="m")
    g.llm("think", tools=True)
    g.run_tools("act")
    g.assign("done")
    g.edge("think", "act", when=has_tool_calls())
    g.edge("act", "think")
    g.edge("think", "done", when=is_final_answer())
    g.start("think")
    g.end("done")
    await client.register_graph(g)

Rules: keywords have the schema's names, or shorter ones where they are clear. The builder refuses what can't be
written down; whether a graph makes sense is checked by the server, which lists all problems at once.
"""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias, Unpack

from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1.graph_pb2 import (
    APPEND_MODE_NONE,
    APPEND_MODE_UNSPECIFIED,
    NODE_JOIN_ALL,
    NODE_JOIN_ANY,
    NODE_JOIN_UNSPECIFIED,
    ContextWindow,
    GraphEdge,
    GraphNode,
    GraphRef,
    GraphTool,
    NodeAction,
    NodeBody,
    Paradigm,
    Reducer,
    StateGraph,
)
from stepgraph.v1.interrupt_pb2 import InterruptOptions
from stepgraph.v1.llm_pb2 import ToolDefinition, ToolFilter
from stepgraph.v1.policy_pb2 import JoinPolicy
from stepgraph_client.durations import Span, to_duration
from stepgraph_client.json_text import JsonLike, to_json_text
from stepgraph_client.keywords import GraphBuildError, checked, closest
from stepgraph_client.policies import choices

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1.edge_condition_pb2 import EdgeCondition
    from stepgraph_client.node_options import (
        EdgeOptions,
        GraphOptions,
        LlmOptions,
        MapOptions,
        NodeOptions,
        StepOptions,
        SubgraphOptions,
        Tools,
    )

#: A graph as it may be named: a reference (`name`, `name@3`, `sha256:…`), a definition, or a builder.
GraphSource: TypeAlias = "str | StateGraph | Graph | GraphRef"


class Graph:
    """A graph under construction. Every method that adds a node returns its id, to be used in edges."""

    @checked
    def __init__(self, name: str, **options: Unpack[GraphOptions]) -> None:
        self._node_ids: set[str] = set()
        self._graph = StateGraph(
            name=name,
            default_model=options.get("default_model", ""),
            max_iterations=options.get("max_iterations", 0),
            retry=options.get("retry"),
            limits=options.get("limits"),
            approval_filter=_approval_filter(options.get("approval", False)),
            metadata=options.get("metadata"),
        )
        if "time_limit" in options:
            self._graph.time_limit.CopyFrom(to_duration(options["time_limit"]))

    @property
    def name(self) -> str:
        """The graph's name."""
        return self._graph.name

    # Nodes ------------------------------------------------------------------------------------------------------

    @checked
    def llm(self, node_id: str, **options: Unpack[LlmOptions]) -> str:
        """Add a node that asks a model. `prompt` is a user message, `system_prompt` the instructions."""
        action = NodeAction.LlmInfer(
            system_prompt_override=options.get("system_prompt"),
            use_streaming=options.get("streaming", False),
            include_tool_definitions=options.get("tools", False) is not False,
            tool_filter_override=_tool_filter(options.get("tools")),
            thinking_budget=options.get("thinking_budget"),
            temperature=options.get("temperature"),
            max_tokens=options.get("max_tokens"),
            model=options.get("model", ""),
            prompt_template=options.get("prompt", ""),
            output_schema=to_json_text(options.get("output_schema", "")),
            tool_choice=options.get("tool_choice"),
            context=options.get("context"),
            provider_options=to_json_text(options.get("provider_options", "")),
        )
        return self._add(node_id, NodeAction(llm_infer=action), options)

    @checked
    def tool(
        self,
        node_id: str,
        tool_name: str,
        args: JsonLike | None = None,
        **options: Unpack[NodeOptions],
    ) -> str:
        """Add a node that calls one tool. Without `args` it performs the carried decision's call of this tool."""
        template = None if args is None else to_json_text(args)
        action = NodeAction.ToolCall(tool_name=tool_name, args_template=template)
        return self._add(node_id, NodeAction(tool_call=action), options)

    @checked
    def run_tools(
        self,
        node_id: str,
        only: Tools = True,  # noqa: FBT002  (a filter; True is its "all")
        max_concurrency: int = 0,
        max_calls: int = 0,
        **options: Unpack[NodeOptions],
    ) -> str:
        """Add a node that performs the calls that the model asked for; what is beyond `max_calls` is answered with an error."""
        action = NodeAction.RunRequestedTools(
            filter=_tool_filter(only), max_concurrency=max_concurrency, max_calls=max_calls
        )
        return self._add(node_id, NodeAction(run_requested_tools=action), options)

    @checked
    def delegate(
        self,
        node_id: str,
        agent_kind: str = "",
        task: str | None = None,
        **options: Unpack[NodeOptions],
    ) -> str:
        """Add a node that hands a task to an agent. Without arguments it performs the carried delegation."""
        action = NodeAction.Delegate(agent_kind=agent_kind, task_template=task)
        return self._add(node_id, NodeAction(delegate=action), options)

    @checked
    def approval(
        self,
        node_id: str,
        description: str,
        choose: Sequence[str] | Mapping[str, str] = (),
        answer_schema: JsonLike = "",
        **options: Unpack[NodeOptions],
    ) -> str:
        """Add a node that asks a person. `choose` are ids, or ids with the labels that people read."""
        action = NodeAction.HumanApproval(
            description=description,
            options=choices(choose),
            answer_schema=to_json_text(answer_schema),
        )
        return self._add(node_id, NodeAction(human_approval=action), options)

    @checked
    def check(self, node_id: str, condition: str, **options: Unpack[NodeOptions]) -> str:
        """Add a node that evaluates a condition and stores "true" or "false" as `_condition_result`."""
        action = NodeAction.ConditionCheck(condition=condition)
        return self._add(node_id, NodeAction(condition_check=action), options)

    @checked
    def switch_paradigm(
        self, node_id: str, paradigm: str = "", **options: Unpack[NodeOptions]
    ) -> str:
        """Add a node that switches the paradigm; without one, to what the carried decision wants."""
        action = NodeAction.SwitchParadigm(paradigm=paradigm)
        return self._add(node_id, NodeAction(switch_paradigm=action), options)

    @checked
    def assign(
        self,
        node_id: str,
        values: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        message: str = "",
        **options: Unpack[NodeOptions],
    ) -> str:
        """Add a node that writes CEL expressions into variables. Empty, it only passes on: a join or an end."""
        action = NodeAction.Assign(set=values or {}, unset=unset, message_template=message)
        return self._add(node_id, NodeAction(assign=action), options)

    @checked
    def step(self, node_id: str, program: str, **options: Unpack[StepOptions]) -> str:
        """Add a node that polls a step program until it is done."""
        action = NodeAction.Step(
            program=program,
            max_turns=options.get("max_turns", 0),
            input_template=(to_json_text(options["input"]) if "input" in options else None),
            variables=options.get("variables", ()),
            include_conversation=options.get("include_conversation", False),
        )
        return self._add(node_id, NodeAction(step=action), options)

    @checked
    def map(self, node_id: str, items: str, **options: Unpack[MapOptions]) -> str:
        """Add a node that runs a body for each item of a list: a node (`body=`) or a step program (`program=`)."""
        if ("body" in options) == ("program" in options):
            message = f"map {node_id!r} needs either body= (a node) or program= (a step program)"
            raise GraphBuildError(message)
        body = (
            NodeBody(node_id=options["body"])
            if "body" in options
            else NodeBody(program=options["program"])
        )
        action = NodeAction.Map(
            items=items,
            body=body,
            max_concurrency=options.get("max_concurrency", 0),
            join=JoinPolicy.Value(
                f"JOIN_POLICY_{options.get('join_policy', 'unspecified').upper()}"
            ),
            drop_failed=options.get("drop_failed", False),
        )
        return self._add(node_id, NodeAction(map=action), options)

    @checked
    def subgraph(
        self, node_id: str, graph: GraphSource | None, **options: Unpack[SubgraphOptions]
    ) -> str:
        """Add a node that runs a graph as a child run. None means this graph itself."""
        ref = GraphRef(same_version=GraphRef.SameVersion()) if graph is None else graph_ref(graph)
        action = NodeAction.Subgraph(
            graph=ref,
            input=options.get("input"),
            output=options.get("output_variables"),
            max_iterations=options.get("max_iterations", 0),
        )
        if "time_limit" in options:
            action.time_limit.CopyFrom(to_duration(options["time_limit"]))
        return self._add(node_id, NodeAction(subgraph=action), options)

    @checked
    def sleep(self, node_id: str, span: Span | datetime, **options: Unpack[NodeOptions]) -> str:
        """Add a node that waits for a span ("10m"), or until a point in time."""
        if isinstance(span, datetime):
            action = NodeAction.Sleep(until=_timestamp(span))
        else:
            action = NodeAction.Sleep(duration=to_duration(span))
        return self._add(node_id, NodeAction(sleep=action), options)

    @checked
    def wait_signal(
        self,
        node_id: str,
        name: str,
        correlation: str = "",
        count: int = 0,
        timeout: Span | None = None,
        **options: Unpack[NodeOptions],
    ) -> str:
        """Add a node that waits for signals."""
        action = NodeAction.WaitSignal(name=name, correlation=correlation, count=count)
        if timeout is not None:
            action.timeout.CopyFrom(to_duration(timeout))
        return self._add(node_id, NodeAction(wait_signal=action), options)

    @checked
    def node(self, node_id: str, action: NodeAction, **options: Unpack[NodeOptions]) -> str:
        """Add a node with an action that you made yourself."""
        return self._add(node_id, action, options)

    # Edges, ends and shared parts -------------------------------------------------------------------------------

    @checked
    def edge(
        self,
        source: str,
        target: str,
        *,
        when: EdgeCondition | None = None,
        **options: Unpack[EdgeOptions],
    ) -> None:
        """Add an edge. `handoff=True` marks it as one that only a Goto follows."""
        self._graph.edges.append(
            GraphEdge(
                id=options.get("id", ""),
                source=source,
                target=target,
                condition=when,
                max_traversals=options.get("max_traversals", 0),
                handoff=options.get("handoff", False),
            )
        )

    @checked
    def chain(self, *nodes: str) -> None:
        """Add unconditional edges from each node to the next."""
        for source, target in itertools.pairwise(nodes):
            self.edge(source, target)

    @checked
    def start(self, node_id: str) -> None:
        """Say which node runs first."""
        self._graph.entry_point = node_id

    @checked
    def end(self, *node_ids: str) -> None:
        """Say with which nodes the run is COMPLETED."""
        self._graph.terminal_nodes.extend(node_ids)

    @checked
    def paradigm(self, name: str, system_prompt: str = "", *, tools: Tools = True) -> str:
        """Add a way of working: a prompt, and the tools that it may see (False: none). Returns its name."""
        tool_filter = ToolFilter() if tools is False else _tool_filter(tools)
        self._graph.paradigms[name].CopyFrom(
            Paradigm(system_prompt=system_prompt, tool_filter=tool_filter)
        )
        return name

    @checked
    def reducer(self, variable: str, how: str) -> None:
        """Say how writes to a variable come together: "append", "sum", "merge", "single", "min", "max", "replace".

        Raises:
            GraphBuildError: there is no such reducer.
        """
        reducer = _REDUCERS.get(how)
        if reducer is None:
            message = f"there is no reducer {how!r}; {closest(how, sorted(_REDUCERS))}"
            raise GraphBuildError(message)
        self._graph.reducers[variable] = reducer

    @checked
    def graph_tool(self, definition: ToolDefinition, graph: GraphSource | None = None) -> str:
        """Add a tool that the graph itself answers: by a graph, or by a node with `answers=`. Returns its name."""
        ref = None if graph is None else graph_ref(graph)
        self._graph.tools.append(GraphTool(definition=definition, graph=ref))
        return definition.name

    def build(self) -> StateGraph:
        """Return the graph as it is now; later calls do not change what was returned.

        Without `start`, the graph begins at its first node.
        """
        built = StateGraph()
        built.CopyFrom(self._graph)
        if not built.entry_point and built.nodes:
            built.entry_point = built.nodes[0].id
        return built

    def _add(self, node_id: str, action: NodeAction, options: NodeOptions) -> str:
        if node_id in self._node_ids:
            message = f"graph {self.name!r} has a node {node_id!r} already; choose another id"
            raise GraphBuildError(message)
        self._node_ids.add(node_id)
        asked = options.get("interrupt", False)
        self._graph.nodes.append(
            GraphNode(
                id=node_id,
                action=action,
                # A HumanApproval asks anyway; a question given with it only says how that looks.
                interrupt=asked is not False and not action.HasField("human_approval"),
                interrupt_options=asked if isinstance(asked, InterruptOptions) else None,
                metadata=options.get("metadata"),
                retry=options.get("retry"),
                limits=options.get("limits"),
                join=_JOINS[options.get("join", "")],
                output_variable=options.get("output", ""),
                selector=options.get("selector"),
                answers=options.get("answers", ""),
                append=(
                    APPEND_MODE_UNSPECIFIED if options.get("append", True) else APPEND_MODE_NONE
                ),
            )
        )
        return node_id


_JOINS = {"": NODE_JOIN_UNSPECIFIED, "any": NODE_JOIN_ANY, "all": NODE_JOIN_ALL}
_REDUCERS = {
    name.removeprefix("REDUCER_").lower(): value for name, value in Reducer.items() if value
}


def graph_ref(source: GraphSource) -> GraphRef:
    """Return a reference to a graph: by name, or with its definition inside."""
    match source:
        case GraphRef():
            return source
        case str():
            return GraphRef(reference=source)
        case Graph():
            return GraphRef(definition=source.build())
        case StateGraph():
            return GraphRef(definition=source)
        case _:
            message = (
                "a graph is a reference such as 'name@3', a Graph or a StateGraph, "
                f"not a {type(source).__name__}"
            )
            raise GraphBuildError(message)


def context(first: int | None = None, last: int | None = None, max_bytes: int = 0) -> ContextWindow:
    """Say which part of the conversation a model sees: so many messages of its beginning and end."""
    return ContextWindow(first_messages=first, last_messages=last, max_bytes=max_bytes)


def _tool_filter(tools: Tools | None) -> ToolFilter | None:
    """Return the filter that is meant; None where all tools pass, or where nothing was said."""
    match tools:
        case None | bool():
            return None
        case ToolFilter():
            return tools
        case str():
            return ToolFilter(allow=[tools])
        case _:
            return ToolFilter(allow=tools)


def _approval_filter(tools: Tools) -> ToolFilter | None:
    return ToolFilter(allow=["*"]) if tools is True else _tool_filter(tools)


def _timestamp(point: datetime) -> Timestamp:
    if point.tzinfo is None:
        message = f"{point} has no time zone; use datetime(…, tzinfo=UTC)"
        raise GraphBuildError(message)
    stamp = Timestamp()
    stamp.FromDatetime(point)
    return stamp
