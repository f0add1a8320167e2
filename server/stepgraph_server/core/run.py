"""The life of a run: one table of what inputs do, one table of what events change.

    decide(state, input, world, now) -> Decision
    evolve(state, event)

Rules: `decide` advances the state that it is given through `evolve`, event by event, and nothing else does; folding the
same events anywhere gives the same state. A refused input raises before it has emitted anything (but for
a fork whose changes fit nothing: the state that it was decided on is nobody's yet). The caller makes the
events durable before it does anything that follows from them, and drops the state if it can't.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from stepgraph.v1 import event_pb2, run_pb2
from stepgraph_server.core import (
    children,
    deadlines,
    forking,
    interrupts,
    lifecycle,
    node_facts,
    outcomes,
    pausing,
    signals,
    steps,
    superstep,
    task_facts,
    tasks,
)
from stepgraph_server.core.conversation import Conversation
from stepgraph_server.core.errors import Quarantined
from stepgraph_server.core.failures import failure
from stepgraph_server.core.inputs import (
    Answer,
    AttemptsLost,
    Cancel,
    ChildRefused,
    ChildSeen,
    Decision,
    Fork,
    GoOn,
    Input,
    Look,
    Outcomes,
    Pause,
    Resolve,
    RoomFound,
    Signal,
    Start,
    TimePassed,
    Unpause,
    Yield,
)
from stepgraph_server.core.instants import from_timestamp
from stepgraph_server.core.state import RULES_VERSION, Carried, RunState
from stepgraph_server.core.status import run_ended
from stepgraph_server.core.turn import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.inputs import World
    from stepgraph_server.core.instants import Instant

TIME_LIMIT_KEY: Final = "run"
START_KEY: Final = "start"

#: Part of a limit from which on a run says that it comes near.
_NEAR: Final = 0.8


def new_state(run_id: str, graph: CompiledGraph, now: Instant) -> RunState:
    """Return the state of a run without events."""
    return RunState(run_id=run_id, graph=graph, first_graph=graph, started_at=now, updated_at=now)


def fold(
    run_id: str,
    graph: CompiledGraph,
    events: Iterable[event_pb2.RunEvent],
    graphs: Mapping[str, CompiledGraph] | None = None,
) -> RunState:
    """Return the state that events add up to; `graphs` are those that forks go on by, by digest.

    Raises Quarantined where they can't be understood.
    """
    state: RunState | None = None
    last = 0
    for event in events:
        try:
            if state is None:
                state = new_state(run_id, graph, from_timestamp(event.time))
                state.graphs.update(graphs or {})
            evolve(state, event)
        except Exception as error:  # whatever stops a fold stops it for this run alone, and says so
            raise Quarantined(run_id, last, f"event {event.sequence}: {error!r}") from error
        last = event.sequence
    if state is None:
        raise Quarantined(run_id, 0, "it has no events")
    if not state.final:
        state.status = live_status(state)
    return state


def decide(state: RunState, happened: Input, world: World, now: Instant) -> Decision:
    """Decide what follows from an input, and advance the state by it. Raises Refused, and then nothing has changed."""
    turn, before = Turn(state, world, now, evolve), state.status
    _take(turn, happened)
    if turn.events or isinstance(happened, GoOn | TimePassed):
        _settle(turn)
        _watch_limits(turn)
    if not state.final:
        state.status = live_status(state)
    if state.parent is not None and turn.events:
        children.tell_parent(turn, before, is_new=isinstance(happened, Start))
    return Decision(turn.events, turn.commands, turn.acks)


def _take(
    turn: Turn, happened: Input
) -> None:  # one case per input: the table of what happens to a run
    match happened:
        case Start():
            turn.emit("run_started", happened.started)
        case Fork():
            forking.on_fork(turn, happened)
        case Outcomes() | AttemptsLost() | RoomFound():
            _on_executors(turn, happened)
        case TimePassed():
            _on_time(turn)
        case Answer() | Cancel() | Signal() | Pause() | Unpause():
            _obey(turn, happened)
        case ChildSeen() | ChildRefused() | Resolve():
            _on_child(turn, happened)
        case Look():
            pass
        case GoOn():
            steps.line_up(turn)
        case _:
            assert_never(happened)


def _on_executors(turn: Turn, happened: Outcomes | AttemptsLost | RoomFound) -> None:
    match happened:
        case Outcomes():
            outcomes.on_outcomes(turn, happened)
        case AttemptsLost():
            tasks.on_lost(turn, happened)
        case RoomFound():
            tasks.on_room(turn, happened.task_ids)
        case _:
            assert_never(happened)


def _obey(turn: Turn, wish: Answer | Cancel | Signal | Pause | Unpause) -> None:
    match wish:
        case Answer():
            interrupts.on_answer(turn, wish)
        case Cancel():
            _on_cancel(turn, wish)
        case Signal():
            signals.on_signal(turn, wish)
        case Pause():
            pausing.on_pause(turn, wish)
        case Unpause():
            pausing.on_unpause(turn, wish)
        case _:
            assert_never(wish)


def _on_child(turn: Turn, happened: ChildSeen | ChildRefused | Resolve) -> None:
    match happened:
        case ChildSeen():
            children.on_seen(turn, happened)
        case ChildRefused():
            children.on_refused(turn, happened)
        case Resolve():
            children.on_resolve(turn, happened)
        case _:
            assert_never(happened)


def _on_cancel(turn: Turn, happened: Cancel) -> None:
    state = turn.state
    stops = state.stopping.outcome if state.stopping is not None else state.status
    if stops == run_pb2.RUN_STATUS_CANCELLED:
        return
    if state.final:
        raise run_ended(state, "it can't be cancelled")
    lifecycle.cancel(turn, lifecycle.cancelled(happened.reason))


def _on_time(turn: Turn) -> None:
    state = turn.state
    if state.paused:
        # What is due stays due; only the run's own limit is not held up.
        _on_time_limit(turn)
        return
    for key in list(state.due.take(turn.now)):
        if state.final:
            return
        if key == TIME_LIMIT_KEY:
            _on_time_limit(turn)
        elif key == lifecycle.GRACE_KEY:
            lifecycle.on_grace_over(turn)
        elif key.startswith(interrupts.DUE_PREFIX):
            deadlines.on_deadline(turn, key.removeprefix(interrupts.DUE_PREFIX))
        elif key != START_KEY:
            task = state.tasks.get(key.removeprefix(tasks.DUE_PREFIX))
            if task is not None:
                tasks.on_due(turn, task)


def _on_time_limit(turn: Turn) -> None:
    state = turn.state
    if state.time_limit_at is not None and turn.now >= state.time_limit_at:
        message = "the run did not end within its time limit, waiting included"
        lifecycle.fail(turn, failure("TIME_LIMIT", message))


def _settle(turn: Turn) -> None:
    """Go on until the run waits for something, has ended, or has had its share of the loop."""
    state, agenda, limits = turn.state, turn.agenda, turn.world.limits
    while not state.final:
        if state.paused or (state.is_pending and turn.now < (state.starts_at or 0)):
            # What is on the agenda follows from the state, and is there again when the run goes on.
            return
        while agenda:
            if turn.has_had_its_share(limits):
                # What is left on the agenda follows from the state: GoOn, also after a restart, puts it there again.
                turn.command(Yield())
                return
            steps.advance(turn, agenda.popleft())
        if state.stopping is not None:
            lifecycle.advance_stop(turn)
            return
        # Asked of the turn again, because the agenda may have ended the run.
        if turn.state.final or not superstep.barrier_reached(state):
            return
        if turn.supersteps >= limits.max_supersteps_per_decision or turn.has_had_its_share(limits):
            turn.command(Yield())
            return
        superstep.go_on(turn)


def _watch_limits(turn: Turn) -> None:
    """Say that a run comes near its size, and end it at its size: a run must stay readable."""
    state, limits = turn.state, turn.world.limits
    if (
        (
            state.sequence < limits.max_events * _NEAR
            and state.journal_bytes < limits.max_journal_bytes * _NEAR
        )
        or state.final
        or state.stopping is not None
    ):
        return
    sizes = (
        ("events", state.sequence, limits.max_events),
        ("journal_bytes", state.journal_bytes, limits.max_journal_bytes),
    )
    for name, used, maximum in sizes:
        if used >= maximum:
            message = f"the run has {used} {name} of at most {maximum}; continue it with a new run"
            lifecycle.fail(
                turn,
                failure(
                    "RUN_TOO_LARGE", message, details={"limit": str(maximum), "used": str(used)}
                ),
            )
            return
        if used >= maximum * _NEAR and name not in state.limits_neared:
            turn.emit(
                "limit_neared", event_pb2.LimitNeared(limit_name=name, used=used, maximum=maximum)
            )


def live_status(state: RunState) -> int:
    """Return the status of a run that is not final."""
    if state.stopping is not None:
        return run_pb2.RUN_STATUS_STOPPING
    if state.paused:
        return run_pb2.RUN_STATUS_PAUSED
    if state.is_pending:
        return run_pb2.RUN_STATUS_PENDING
    # What waits for people, here or in a child run, is all that there is.
    waiting = state.asking + state.waiting_children
    if len(state.tasks) > waiting or not (state.open_questions or state.waiting_children):
        return run_pb2.RUN_STATUS_RUNNING
    # A node whose conditions are all decided may wait for a turn, like one that has not acted yet.
    if _goes_on(state):
        return run_pb2.RUN_STATUS_RUNNING
    return run_pb2.RUN_STATUS_SUSPENDED


def only_sleeps(state: RunState) -> bool:
    """Whether nothing happens to a run before time passes, or somebody wants something of it."""
    resting = state.sleeping + state.asking + state.waiting_children
    if not state.sleeping or resting != len(state.tasks):
        return False
    return not _goes_on(state)


def _goes_on(state: RunState) -> bool:
    """Whether something has to be done although nothing is outstanding for it."""
    return any(steps.is_ready(each) for each in state.activations.values()) or any(
        steps.is_ready(each) for each in state.spawned.values()
    )


def next_due(state: RunState) -> Instant | None:
    """Return when something of the run happens by itself next, or None."""
    if state.final:
        return None
    if state.paused:
        return state.time_limit_at
    return state.due.next(lambda key: _is_live(state, key))


def _is_live(state: RunState, key: str) -> bool:
    if key == TIME_LIMIT_KEY:
        return state.stopping is None
    if key == START_KEY:
        return state.is_pending and state.stopping is None
    if key == lifecycle.GRACE_KEY:
        return state.stopping is not None
    if key.startswith(interrupts.DUE_PREFIX):
        question = state.questions.get(key.removeprefix(interrupts.DUE_PREFIX))
        return question is not None and question.open and state.stopping is None
    return state.stopping is None and key.removeprefix(tasks.DUE_PREFIX) in state.tasks


# Facts


def evolve(state: RunState, event: event_pb2.RunEvent, at: Instant | None = None) -> None:
    """Change the state by one fact. Raises ValueError for an event out of order, or of a kind that is not known.

    `at` is the event's time, from who has it already.
    """
    sequence = event.sequence
    if sequence != state.sequence + 1 or state.final:
        message = (
            f"event {sequence} can't follow event {state.sequence} of a run that is {state.status}"
        )
        raise ValueError(message)
    kind = event.WhichOneof("kind")
    apply = _FACTS.get(kind)
    if apply is None:
        message = f"an event of a kind that this server does not know ({kind or 'unset'})"
        raise ValueError(message)
    state.sequence = sequence
    state.updated_at = from_timestamp(event.time) if at is None else at
    apply(state, event)


def _apply_run_started(state: RunState, event: event_pb2.RunEvent) -> None:
    fact = event.run_started
    if fact.rules_version > RULES_VERSION:
        message = (
            f"the run is walked by rules {fact.rules_version}, this server knows {RULES_VERSION}"
        )
        raise ValueError(message)
    initial, given = fact.initial_state, fact.input
    state.rules_version = fact.rules_version
    state.graph_version = fact.graph
    state.root_run_id = fact.root_run_id or state.run_id
    state.labels = dict(fact.labels)
    state.selector = tuple(sorted(fact.selector.items()))
    state.max_iterations = fact.max_iterations
    state.token_limit = fact.token_limit
    state.parent = fact.parent if fact.HasField("parent") else None
    state.depth = fact.depth
    state.resolved = {each.reference: each.graph for each in fact.resolved_graphs}
    state.traceparent, state.tracestate = fact.traceparent, fact.tracestate
    state.conversation = Conversation.from_message(initial.conversation)
    for added in given.messages:
        state.conversation.append(added)
    state.variables = {**initial.variables, **given.variables}
    state.metadata = dict(initial.metadata)
    state.terminate = initial.should_terminate
    last_result = initial.last_result if initial.HasField("last_result") else None
    if given.HasField("value"):
        state.variables["input"] = last_result = given.value
    state.carried = Carried(
        last_result=last_result,
        last_error=initial.last_error if initial.HasField("last_error") else None,
        decision=initial.parsed_decision if initial.HasField("parsed_decision") else None,
        paradigm=initial.active_paradigm,
    )
    state.possible = state.graph.entry.bit | state.graph.entry.reach
    if fact.HasField("time_limit_time"):
        state.time_limit_at = from_timestamp(fact.time_limit_time)
        state.due.arm(state.time_limit_at, TIME_LIMIT_KEY)
    if fact.HasField("delay_until_time"):
        state.starts_at = from_timestamp(fact.delay_until_time)
        state.due.arm(state.starts_at, START_KEY)


def _apply_nothing(_: RunState, __: event_pb2.RunEvent) -> None:
    """Some facts are for readers only."""


def _apply_limit_neared(state: RunState, event: event_pb2.RunEvent) -> None:
    state.limits_neared.add(event.limit_neared.limit_name)


_FACTS: Final[Mapping[str | None, Callable[[RunState, event_pb2.RunEvent], None]]] = {
    "run_started": _apply_run_started,
    "superstep_started": superstep.apply_superstep_started,
    "node_skipped": _apply_nothing,
    "tools_offered": task_facts.apply_tools_offered,
    "task_scheduled": task_facts.apply_task_scheduled,
    "task_assigned": task_facts.apply_task_assigned,
    "task_completed": task_facts.apply_task_completed,
    "task_failed": task_facts.apply_task_failed,
    "task_lost": task_facts.apply_task_lost,
    "task_cancelled": task_facts.apply_task_cancelled,
    "task_unclaimed": task_facts.apply_task_unclaimed,
    "node_completed": node_facts.apply_node_completed,
    "node_failed": node_facts.apply_node_failed,
    "node_cancelled": lifecycle.apply_node_cancelled,
    "edges_evaluated": node_facts.apply_edges_evaluated,
    "child_started": children.apply_child_started,
    "child_status_changed": children.apply_child_status_changed,
    "graphs_resolved": children.apply_graphs_resolved,
    "interrupt_opened": interrupts.apply_interrupt_opened,
    "interrupt_answered": interrupts.apply_interrupt_answered,
    "interrupt_closed": interrupts.apply_interrupt_closed,
    "variable_overwritten": _apply_nothing,
    "limit_neared": _apply_limit_neared,
    "run_forked": forking.apply_run_forked,
    "signal_received": signals.apply_signal_received,
    "run_paused": pausing.apply_run_paused,
    "run_unpaused": pausing.apply_run_unpaused,
    "run_stopping": lifecycle.apply_run_stopping,
    "run_completed": lifecycle.apply_run_ended,
    "run_failed": lifecycle.apply_run_ended,
    "run_cancelled": lifecycle.apply_run_ended,
}
