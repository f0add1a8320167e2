"""Spans of one run, made of its events.

Rules: nothing here is open in the sense of a tracer: what has begun is a few numbers, and a span comes into being, whole, with
the event that ends it. All times are those of the events. The same events give the same spans, so whoever has lost the numbers
gives it the journal again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stepgraph_server.telemetry import span_names as names
from stepgraph_server.telemetry.attempt_spans import AttemptSpans
from stepgraph_server.telemetry.spans import End, EndedSpan, SpanEvent, nanoseconds
from stepgraph_server.telemetry.trace_ids import node_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph.v1 import event_pb2, run_pb2
    from stepgraph_server.telemetry.spans import Attributes
    from stepgraph_server.telemetry.trace_ids import RunTrace


@dataclass(slots=True, kw_only=True)
class _Node:
    """A running of a node that has begun."""

    start_ns: int
    events: list[SpanEvent] = field(default_factory=list)
    links: list[str] = field(default_factory=list)


class RunProjection:
    """What has begun in a run. Give it all events of the run in order, each once."""

    def __init__(self, trace: RunTrace) -> None:
        self.trace: Final = trace
        #: The last event that was taken.
        self.sequence = 0
        self._ended: list[EndedSpan] = []
        self._start_ns = 0
        self._supersteps = 0
        self._graph: run_pb2.GraphVersion | None = None
        #: The context of whoever started it; of a fork, whoever started the other run.
        self._origin = ""
        self._links: list[str] = []
        self._common: Attributes = {names.NAMESPACE: trace.namespace, names.RUN_ID: trace.run_id}
        self._nodes: dict[str, _Node] = {}
        #: The activation that asked, by the id of the question.
        self._asked_by: dict[str, str] = {}
        self._attempts = AttemptSpans(trace, self._common)

    def take(self, events: Iterable[event_pb2.RunEvent]) -> list[EndedSpan]:
        """Take the next events, and return the spans that ended with them."""
        for event in events:
            self.sequence = event.sequence
            self._take(event, nanoseconds(event.time))
        ended, self._ended = self._ended, []
        return ended

    def _take(self, event: event_pb2.RunEvent, at_ns: int) -> None:
        match event.WhichOneof("kind"):
            case "task_scheduled":
                self._attempts.scheduled(event.task_scheduled, at_ns)
            case "task_assigned":
                self._attempts.assigned(event.task_assigned, at_ns)
            case "task_completed" | "task_failed" | "task_lost" | "task_cancelled":
                self._attempt_ended(event, at_ns)
            case "superstep_started":
                self._superstep_started(event.superstep_started, at_ns)
            case "interrupt_opened" | "interrupt_answered" | "interrupt_closed":
                self._asked(event, at_ns)
            case "run_started":
                self._run_started(event.run_started, at_ns)
            case "run_forked":
                self._run_forked(event.run_forked, at_ns)
            case "run_completed" | "run_failed" | "run_cancelled":
                self._run_ended(event, at_ns)
            case _:
                # What ends a node; the other facts end nothing and have no span.
                self._node_went_on(event, at_ns)

    def _attempt_ended(self, event: event_pb2.RunEvent, at_ns: int) -> None:
        attempts = self._attempts
        match event.WhichOneof("kind"):
            case "task_completed":
                span = attempts.completed(event.task_completed, at_ns)
            case "task_failed":
                span = attempts.failed(event.task_failed, at_ns)
            case "task_lost":
                span = attempts.lost(event.task_lost, at_ns)
            case _:
                span = attempts.cancelled(event.task_cancelled, at_ns)
        if span is not None:
            self._ended.append(span)

    # Nodes

    def _superstep_started(self, fact: event_pb2.SuperstepStarted, at_ns: int) -> None:
        self._supersteps = fact.superstep
        for node_id in fact.nodes:
            self._nodes[f"{fact.superstep}/{node_id}"] = _Node(start_ns=at_ns)

    def _node_went_on(self, event: event_pb2.RunEvent, at_ns: int) -> None:
        match event.WhichOneof("kind"):
            case "node_completed" if not event.node_completed.edges_pending:
                # Otherwise executors are asked for conditions; that is work of the node too.
                end = End(outcome="completed", at_ns=at_ns)
                self._end_node(event.node_completed.activation_id, end)
            case "edges_evaluated":
                end = End(outcome="completed", at_ns=at_ns)
                self._end_node(event.edges_evaluated.activation_id, end)
            case "node_failed":
                code = event.node_failed.failure.code
                end = End(outcome="failed", at_ns=at_ns, error=code)
                self._end_node(event.node_failed.activation_id, end)
            case "node_cancelled":
                end = End(outcome="cancelled", at_ns=at_ns)
                self._end_node(event.node_cancelled.activation_id, end)
            case _:
                pass

    def _end_node(self, activation_id: str, end: End) -> None:
        node = self._nodes.pop(activation_id, None)
        if node is None:
            return  # it has ended before, and what follows is about its edges
        trace, node_id = self.trace, node_of(activation_id)
        attributes: Attributes = {
            **self._common,
            names.NODE_ID: node_id,
            names.SUPERSTEP: int(activation_id.partition("/")[0]),
            names.OUTCOME: end.outcome,
        }
        # A fork may go on with another graph than the one in which its nodes began.
        compiled = trace.graph.nodes.get(node_id)
        if compiled is not None:
            attributes[names.NODE_KIND] = compiled.action_kind
        self._ended.append(
            EndedSpan(
                trace=trace,
                name=f"node {node_id}",
                span_id=trace.node_span(activation_id),
                parent_id=trace.run_span(),
                start_ns=node.start_ns,
                end_ns=end.at_ns,
                attributes=attributes,
                error=end.error,
                events=node.events,
                links=node.links,
            )
        )

    # Questions

    def _asked(self, event: event_pb2.RunEvent, at_ns: int) -> None:
        match event.WhichOneof("kind"):
            case "interrupt_opened":
                question = event.interrupt_opened.question
                self._asked_by[question.interrupt_id] = question.activation_id
                self._note(question.interrupt_id, "interrupt.opened", at_ns)
            case "interrupt_answered":
                answered = event.interrupt_answered
                node = self._note(answered.interrupt_id, "interrupt.answered", at_ns)
                # Who answers has a trace of their own, long after the one that the run is part of.
                if node is not None and answered.traceparent:
                    node.links.append(answered.traceparent)
            case _:
                self._note(event.interrupt_closed.interrupt_id, "interrupt.closed", at_ns)

    def _note(self, interrupt_id: str, name: str, at_ns: int) -> _Node | None:
        node = self._nodes.get(self._asked_by.get(interrupt_id, ""))
        if node is not None:
            attributes: Attributes = {names.INTERRUPT_ID: interrupt_id}
            node.events.append(SpanEvent(name=name, time_ns=at_ns, attributes=attributes))
        return node

    # The run

    def _run_started(self, fact: event_pb2.RunStarted, at_ns: int) -> None:
        self._start_ns = at_ns
        self._set_graph(fact.graph)
        self._origin = fact.traceparent

    def _run_forked(self, fact: event_pb2.RunForked, at_ns: int) -> None:
        """The run begins here, with what is outstanding; all before is the other run's, and so are its spans."""
        self._ended.clear()
        self._start_ns = at_ns
        self._attempts.begin_anew(at_ns)
        for node in self._nodes.values():
            node.start_ns = at_ns
        if fact.HasField("graph"):
            self._set_graph(fact.graph)
        if self._origin:
            self._links.append(self._origin)

    def _set_graph(self, graph: run_pb2.GraphVersion) -> None:
        self._graph = graph
        self._common.pop(names.GRAPH_NAME, None)
        self._common.pop(names.GRAPH_VERSION, None)
        if graph.name:
            self._common[names.GRAPH_NAME] = graph.name
            self._common[names.GRAPH_VERSION] = graph.version

    def _run_ended(self, event: event_pb2.RunEvent, at_ns: int) -> None:
        match event.WhichOneof("kind"):
            case "run_completed":
                end = End(outcome="completed", at_ns=at_ns)
            case "run_failed":
                end = End(outcome="failed", at_ns=at_ns, error=event.run_failed.failure.code)
            case _:
                # Somebody wanted it so: that is no error.
                end = End(outcome="cancelled", at_ns=at_ns)
        self._ended.extend(self._attempts.abandon(at_ns))
        for activation_id in list(self._nodes):
            self._end_node(activation_id, End(outcome="unreported", at_ns=at_ns))
        self._ended.append(self._run_span(end))

    def _run_span(self, end: End) -> EndedSpan:
        trace, graph = self.trace, self._graph
        attributes: Attributes = {
            **self._common,
            names.OPERATION: "invoke_workflow",
            names.RUN_STATUS: end.outcome,
            names.RUN_SUPERSTEPS: self._supersteps,
            names.INPUT_TOKENS_TOTAL: self._attempts.input_tokens,
            names.OUTPUT_TOKENS_TOTAL: self._attempts.output_tokens,
        }
        name = "run"
        if graph is not None:
            attributes[names.GRAPH_DIGEST] = graph.digest
            if graph.name:
                attributes[names.WORKFLOW] = graph.name
                name = f"run {graph.name}"
        return EndedSpan(
            trace=trace,
            name=name,
            span_id=trace.run_span(),
            parent_id=trace.parent_id,
            start_ns=self._start_ns,
            end_ns=end.at_ns,
            attributes=attributes,
            error=end.error,
            links=self._links,
        )
