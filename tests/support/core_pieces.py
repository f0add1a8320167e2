"""Pieces of a run for unit tests: graphs in YAML, started runs, activations and views."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, executor_service_pb2, value_pb2
from stepgraph_client.files import parse_graph
from stepgraph_server.core.actions.step import Poll
from stepgraph_server.core.graph import GraphDefaults, compile_graph
from stepgraph_server.core.inputs import Outcomes, Start
from stepgraph_server.core.run import new_state
from stepgraph_server.core.state import RULES_VERSION, Activation, Carried, Delta
from stepgraph_server.core.view import View
from tests.support.core_run import RUN_ID, START, PlayedRun
from tests.support.core_world import PlayedExecutor, PlayedWorld

if TYPE_CHECKING:
    from stepgraph.v1 import task_pb2
    from stepgraph_server.core.actions.step import Result
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.state import RunState


def compiled(text: str) -> CompiledGraph:
    """Compile the nodes, edges and so on of a graph in YAML; the first node is `a` unless the text says otherwise."""
    lines = text if "start:" in text else f"start: a\n{text}"
    return compile_graph(parse_graph(f"name: g\ndefault_model: m\n{lines}").graph, GraphDefaults())


def text(value: str) -> value_pb2.Value:
    """Return text as a value."""
    return value_pb2.Value(text=value)


def json(value: str) -> value_pb2.Value:
    """Return JSON text as a value."""
    return value_pb2.Value(json=value)


def world() -> PlayedWorld:
    """Return a world with one executor that can do everything."""
    made = PlayedWorld()
    made.join(PlayedExecutor(id="e1", instance="i1"))
    return made


def started(
    graph: CompiledGraph, played: PlayedWorld | None = None, *, token_limit: int = 0
) -> PlayedRun:
    """Return a run of the graph that was started."""
    run = PlayedRun(graph, played if played is not None else world())
    fact = event_pb2.RunStarted(
        run_id=RUN_ID,
        rules_version=RULES_VERSION,
        max_iterations=graph.max_iterations,
        token_limit=token_limit,
    )
    run.happen(Start(started=fact))
    return run


def state_of(graph: CompiledGraph, **variables: value_pb2.Value) -> RunState:
    """Return a state without events that has variables."""
    state = new_state(RUN_ID, graph, START)
    state.variables.update(variables)
    return state


def activation_of(graph: CompiledGraph, node: str, carried: Carried | None = None) -> Activation:
    """Return an activation of a node in superstep 1."""
    part = carried if carried is not None else Carried()
    return Activation(
        id=f"1/{node}", node=graph.nodes[node], superstep=1, carried=part, entered_with=part
    )


def poll_of(state: RunState, node: str, carried: Carried | None = None, *results: Result) -> Poll:
    """Return a poll of a node's action: the first, or the second with results."""
    activation = activation_of(state.graph, node, carried)
    activation.results = list(results)
    activation.call_ids = [""] * len(results)
    return Poll(
        state=state,
        activation=activation,
        view=View(state, activation.carried, Delta()),
        turn=1 if results else 0,
        results=results,
        world=world(),
    )


def succeeded(task_id: str, result: task_pb2.TaskResult, attempt: int = 1) -> Outcomes:
    """Return the report that an attempt of e1 succeeded."""
    outcome = executor_service_pb2.AttemptOutcome(
        task_id=f"{RUN_ID}/{task_id}", attempt=attempt, succeeded=result
    )
    return Outcomes(instance="i1", outcomes=((task_id, outcome),))
