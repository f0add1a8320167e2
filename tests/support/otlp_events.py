"""Runs as their events, written short, for tests of what is made of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from google.protobuf.json_format import ParseDict

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_server.core.graph import CompiledGraph, compile_graph
from stepgraph_server.telemetry.sampling import Sampler
from stepgraph_server.telemetry.trace_ids import RunTrace
from tests.support.graphs import DEFAULTS, graph

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
ALL = Sampler(ratio=1.0)


def trace(
    traceparent: str = "",
    *,
    run_id: str = "r1",
    namespace: str = "default",
    started_at: int = 7,
    sampler: Sampler | None = ALL,
    tracestate: str = "",
) -> RunTrace:
    """Return the trace of a run of a graph with the nodes `a` and `b`."""
    state = SimpleNamespace(
        run_id=run_id,
        graph=_graph(),
        traceparent=traceparent,
        tracestate=tracestate,
        started_at=started_at,
    )
    return RunTrace(namespace, state, sampler)  # type: ignore[arg-type]  # all that it looks at


def _graph() -> CompiledGraph:
    return compile_graph(graph("a b", ["a > b"]), DEFAULTS)


def events(*facts: tuple[str, Mapping[str, object]], first: int = 1) -> Sequence[RunEvent]:
    """Return events, one second after the other, each given as its kind and its fields."""
    return [
        ParseDict(
            {"sequence": sequence, "time": f"1970-01-01T00:00:{sequence:02}Z", kind: dict(fields)},
            RunEvent(),
        )
        for sequence, (kind, fields) in enumerate(facts, first)
    ]


STARTED = ("run_started", {"run_id": "r1", "graph": {"name": "g", "version": 3, "digest": "d"}})
TASK = "1/a/t0/e0"


def superstep(number: int = 1, *nodes: str) -> tuple[str, Mapping[str, object]]:
    return "superstep_started", {"superstep": number, "nodes": list(nodes or "a")}


def scheduled(
    requirement: Mapping[str, object], *, assigned: bool = True, **fields: object
) -> tuple[str, Mapping[str, object]]:
    given: dict[str, object] = {"task_id": TASK, "requirement": requirement, **fields}
    if assigned:
        given["assignment"] = {"attempt": 1, "executor_id": "e1"}
    return "task_scheduled", given


def completed_node(
    activation_id: str = "1/a", **fields: object
) -> tuple[str, Mapping[str, object]]:
    return "node_completed", {
        "activation_id": activation_id,
        "node_id": activation_id.split("/")[1],
        **fields,
    }
