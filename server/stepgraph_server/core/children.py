"""Child runs, as their parent decides about them and as they begin.

Rules: a child run is a task of its parent's, outstanding like any other: nothing else says that it is there. Its id follows from the
task's, so creating it twice is harmless; what is said of it may be said again, and only what is new is recorded. What its parent wishes
of it (that it stops, pauses, goes on) is wished again whenever it shows itself, so nothing of that is noted anywhere either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2, failure_pb2, graph_pb2, run_pb2
from stepgraph_server.core import tasks
from stepgraph_server.core.failures import MAX_CAUSES, failure
from stepgraph_server.core.inputs import (
    Cancel,
    ChildEnd,
    ChildSeen,
    Pause,
    TellChild,
    TellParent,
    Unpause,
)
from stepgraph_server.core.instants import after, to_timestamp
from stepgraph_server.core.names import wanted_of
from stepgraph_server.core.state import RULES_VERSION, TaskStatus
from stepgraph_server.core.state_checks import trim_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph.v1 import task_pb2
    from stepgraph_server.core.actions.step import Child
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.inputs import ChildRefused, Resolve
    from stepgraph_server.core.instants import Instant, Span
    from stepgraph_server.core.state import RunState, Task
    from stepgraph_server.core.turn import Turn

#: What tells a parent that it need not wait for anybody else than people.
_WAITS: Final = run_pb2.RUN_STATUS_SUSPENDED


# As the parent sees them


def on_seen(turn: Turn, seen: ChildSeen) -> None:
    """Take note of how a child run is, and let it know what is wished of it."""
    task = _outstanding(turn.state, seen.task_id)
    if task is None:
        if seen.end is None:
            # It was stopped, and did not hear of it; or it came to be when nobody waited for it any more.
            reason = "its parent does not wait for it any more"
            turn.command(_tell(seen, Cancel(reason=reason)))
        return
    if not task.child_started:
        turn.emit(
            "child_started",
            event_pb2.ChildStarted(task_id=task.id, run_id=seen.run_id, graph=seen.graph),
        )
    if seen.end is not None:
        _on_end(turn, task, seen.run_id, seen.end)
        return
    if task.child_waits != (seen.status == _WAITS):
        status = _WAITS if seen.status == _WAITS else run_pb2.RUN_STATUS_RUNNING
        turn.emit(
            "child_status_changed",
            event_pb2.ChildStatusChanged(task_id=task.id, run_id=seen.run_id, status=status),
        )
    _wish(turn, seen)


def _wish(turn: Turn, seen: ChildSeen) -> None:
    """Let a child run do as its parent does."""
    state, is_paused = turn.state, seen.status == run_pb2.RUN_STATUS_PAUSED
    if state.stopping is not None:
        turn.command(_tell(seen, Cancel(reason=state.stopping.reason)))
    elif state.paused and not is_paused:
        turn.command(_tell(seen, tasks.paused_with_parent()))
    elif seen.paused_by_parent and not state.paused:
        turn.command(_tell(seen, Unpause(by_parent=True)))


def _tell(seen: ChildSeen, happened: Cancel | Pause | Unpause) -> TellChild:
    return TellChild(task_id=seen.task_id, run_id=seen.run_id, happened=happened)


def on_refused(turn: Turn, refused: ChildRefused) -> None:
    """Fail a task that no child run will perform."""
    task = _outstanding(turn.state, refused.task_id)
    if task is None:
        return
    if turn.state.stopping is not None:
        reason = turn.state.stopping.reason
        tasks.end_cancelled(turn, task, event_pb2.TaskCancelled(task_id=task.id, reason=reason))
    else:
        tasks.fail_attempt(turn, task, refused.failure, for_good=True)


def _outstanding(state: RunState, task_id: str) -> Task | None:
    task = state.tasks.get(task_id)
    return task if task is not None and task.status is TaskStatus.CHILD else None


def _on_end(turn: Turn, task: Task, run_id: str, end: ChildEnd) -> None:
    if end.failure is None:
        _on_completed(turn, task, run_id, end)
    elif turn.state.stopping is not None and end.failure.code == "CANCELLED":
        fact = event_pb2.TaskCancelled(task_id=task.id, reason=turn.state.stopping.reason)
        fact.acknowledged = True
        fact.usage.CopyFrom(end.usage)
        tasks.end_cancelled(turn, task, fact)
    else:
        tasks.fail_attempt(
            turn, task, _failure_of(task, run_id, end.failure), usage=end.usage, for_good=True
        )


def _on_completed(turn: Turn, task: Task, run_id: str, end: ChildEnd) -> None:
    wanted = _wanted(task)
    event = turn.next_event()
    event.task_completed.task_id = task.id
    result = event.task_completed.result.graph
    result.run_id = run_id
    if end.output is not None:
        result.output.CopyFrom(end.output)
    for name in wanted:
        if name in end.variables:
            result.variables[name].CopyFrom(end.variables[name])
    if end.usage.ByteSize():
        result.usage.CopyFrom(end.usage)
    problem = _missing(task, run_id, end.variables, wanted) or _too_large(turn, task, result)
    if problem is not None:
        tasks.fail_attempt(turn, task, problem, usage=end.usage, for_good=True)
        return
    turn.bytes += result.ByteSize()
    tasks.end(turn, task, event)


def _wanted(task: Task) -> dict[str, bool]:
    """Return the variables that are wanted of a child run, by whether it must have them."""
    action = task.activation.node.action
    if task.activation.program is not None or not isinstance(action, graph_pb2.NodeAction.Subgraph):
        return {}
    return dict(sorted(wanted_of(each) for each in action.output.values()))


def _missing(
    task: Task, run_id: str, there: Mapping[str, object], wanted: Mapping[str, bool]
) -> failure_pb2.Failure | None:
    missing = sorted(name for name, must in wanted.items() if must and name not in there)
    if not missing:
        return None
    known = ", ".join(sorted(there)[:20]) or "none"
    message = (
        f"child run {run_id} has COMPLETED without {', '.join(missing)}, which its output should give; its variables are "
        f"{known}. Write {missing[0]}? for one that may be unset"
    )
    details = {"child_run_id": run_id, "variables": ",".join(missing)}
    return failure("OUTPUT_MISSING", message, source=task.activation.node.id, details=details)


def _too_large(
    turn: Turn, task: Task, result: task_pb2.TaskResult.Graph
) -> failure_pb2.Failure | None:
    size, limit = result.ByteSize(), turn.world.limits.max_bytes_per_decision
    if size <= limit:
        return None
    message = f"what child run {result.run_id} gives has {size} bytes, of at most {limit}; take fewer variables, or store large values"
    details = {"child_run_id": result.run_id, "limit_bytes": str(limit)}
    return failure("PAYLOAD_TOO_LARGE", message, source=task.activation.node.id, details=details)


def _failure_of(task: Task, run_id: str, why: failure_pb2.Failure) -> failure_pb2.Failure:
    """Return a child run's failure as its parent's edges see it: the same code, and the whole of it as the cause."""
    made = failure_pb2.Failure(
        code=why.code,
        category=why.category,
        # Another try would be the same run.
        retryable=False,
        message=f"child run {run_id}: {why.message}",
        source=task.activation.node.id,
        details={"child_run_id": run_id},
        causes=[why][:MAX_CAUSES],
    )
    return trim_failure(made)


def on_resolve(turn: Turn, happened: Resolve) -> None:
    """Fix what references stand for, for this root and all runs below it. What is fixed already stays."""
    known = turn.state.resolved
    new = {name: graph for name, graph in happened.graphs.items() if name not in known}
    if new:
        turn.emit("graphs_resolved", event_pb2.GraphsResolved(graphs=resolved_graphs(new)))


# As they begin


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlan:
    """A child run that is to be created: all that does not depend on its graph."""

    run_id: str
    parent: run_pb2.RunParent
    root_run_id: str
    depth: int
    graph: graph_pb2.GraphRef
    #: What its parent walks, for same_version.
    parent_graph: run_pb2.GraphVersion
    resolved: Mapping[str, run_pb2.GraphVersion]
    input: run_pb2.RunInput
    selector: tuple[tuple[str, str], ...]
    token_limit: int
    max_iterations: int
    time_limit: Span | None
    parent_time_limit_at: Instant | None


def plan_of(state: RunState, task: Task, child: Child) -> ChildPlan:
    """Return what is to be created for a task. `child` is what it was prepared with."""
    left, walked = state.budget_remaining, state.graph_version
    assert walked is not None, "it has started"
    return ChildPlan(
        run_id=tasks.child_run_id(state, task),
        parent=run_pb2.RunParent(run_id=state.run_id, task_id=task.id),
        root_run_id=state.root_run_id,
        depth=state.depth + 1,
        graph=child.graph,
        parent_graph=run_pb2.GraphVersion(
            name=walked.name, version=walked.version, digest=state.graph.digest
        ),
        resolved=dict(state.resolved),
        input=child.input,
        selector=task.selector,
        # Others of the same superstep may have used the rest since; 0 would be no limit at all.
        token_limit=0 if left is None else max(1, left),
        max_iterations=child.max_iterations,
        time_limit=child.time_limit,
        parent_time_limit_at=state.time_limit_at,
    )


def run_started(
    plan: ChildPlan,
    version: run_pb2.GraphVersion,
    graph: CompiledGraph,
    now: Instant,
    *,
    traceparent: str,
    tracestate: str,
) -> event_pb2.RunStarted:
    """Return the first event of a child run."""
    fact = event_pb2.RunStarted(
        run_id=plan.run_id,
        graph=version,
        rules_version=RULES_VERSION,
        input=plan.input,
        selector=dict(plan.selector),
        max_iterations=plan.max_iterations or graph.max_iterations,
        token_limit=plan.token_limit,
        parent=plan.parent,
        root_run_id=plan.root_run_id,
        depth=plan.depth,
        traceparent=traceparent,
        tracestate=tracestate,
        resolved_graphs=resolved_graphs(plan.resolved),
    )
    ends = [after(now, limit) for limit in (plan.time_limit, graph.time_limit) if limit]
    if plan.parent_time_limit_at is not None:
        ends.append(plan.parent_time_limit_at)
    if ends:
        fact.time_limit_time.CopyFrom(to_timestamp(min(ends)))
    return fact


def resolved_graphs(graphs: Mapping[str, run_pb2.GraphVersion]) -> list[run_pb2.ResolvedGraph]:
    """Return what references stand for as events have it, by reference."""
    return [
        run_pb2.ResolvedGraph(reference=reference, graph=graphs[reference])
        for reference in sorted(graphs)
    ]


# As they tell of themselves


def tell_parent(turn: Turn, before: int, *, is_new: bool) -> None:
    """Want the parent told if this run has begun, has ended, waits for people now, or does not any more."""
    state = turn.state
    if state.parent is None:
        return
    changed = (before == _WAITS) != (state.status == _WAITS)
    if is_new or state.final or changed:
        turn.command(TellParent(parent_run_id=state.parent.run_id, seen=seen_of(state)))


def seen_of(state: RunState) -> ChildSeen:
    """Return a child run as its parent is told of it."""
    assert state.parent is not None
    assert state.graph_version is not None, "it has started"
    return ChildSeen(
        task_id=state.parent.task_id,
        run_id=state.run_id,
        graph=state.graph_version,
        status=state.status,
        end=_end_of(state) if state.final else None,
        paused_by_parent=state.paused_by_parent,
    )


def _end_of(state: RunState) -> ChildEnd:
    assert state.result is not None
    return ChildEnd(
        output=state.result.output if state.result.HasField("output") else None,
        variables=state.variables,
        failure=state.failure,
        usage=state.tokens.to_message(),
    )


# Facts


def apply_child_started(state: RunState, event: event_pb2.RunEvent) -> None:
    """The child run is there."""
    state.tasks[event.child_started.task_id].child_started = True


def apply_child_status_changed(state: RunState, event: event_pb2.RunEvent) -> None:
    """The child run waits for people, or goes on."""
    fact = event.child_status_changed
    task = state.tasks[fact.task_id]
    waits = fact.status == _WAITS
    if waits != task.child_waits:
        state.waiting_children += 1 if waits else -1
    task.child_waits = waits


def apply_graphs_resolved(state: RunState, event: event_pb2.RunEvent) -> None:
    """References stand for versions."""
    for each in event.graphs_resolved.graphs:
        state.resolved[each.reference] = each.graph


__all__ = [
    "ChildPlan",
    "on_refused",
    "on_resolve",
    "on_seen",
    "plan_of",
    "resolved_graphs",
    "run_started",
    "seen_of",
    "tell_parent",
]
