"""What holds of every run, whatever happens to it: the named invariants.

Rules: an invariant is a function of a folded state and of the events that it was folded from, in order; it returns what
is broken, one line each, and changes nothing. They are written against the events alone wherever that is possible, so
that they don't repeat what `evolve` does. Nothing of the server calls them: tests do, after every step.

    I1  sequence numbers are 1, 2, 3… without gaps
    I2  folding the stored events gives the state held
    I3  nothing follows a terminal event
    I4  a task ends at most once
    I5  every outstanding task and question follows from stored events
    I6  the same events and the same input give the same decision          (`difference` of two decisions' states)
    I7  a refused input changes nothing                                    (`difference` of before and after)
    I8  an unknown variant never becomes an event
    I9  the result of a superstep does not depend on who ended first       (`difference` of two runs)
    I10 an interrupt is answered at most once, and not after it was closed
    I11 a child run begins at most once, while its task is outstanding, and its parent ends after it was heard of
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.errors import Quarantined
from stepgraph_server.core.instants import from_timestamp
from stepgraph_server.core.run import fold, live_status, next_due
from stepgraph_server.core.spawn import Spawn
from stepgraph_server.core.state import Activation, Phase, Question, RunState, Task, TaskStatus
from stepgraph_server.core.step_program import StepProgram
from stepgraph_server.core.steps import is_ready
from stepgraph_server.core.tasks import due_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stepgraph.v1 import event_pb2
    from stepgraph_server.core.instants import Instant

    Events = Sequence[event_pb2.RunEvent]

_FINAL: Final = frozenset({"run_completed", "run_failed", "run_cancelled"})

#: Fields that lead back to what is compared anyway.
_UPWARDS: Final = ("activation", "parent")

#: What is compared field by field.
_COMPARED: Final = (RunState, Activation, Task, Question, StepProgram, Spawn)

#: Fields that a fold need not give again: caches and notes, and what says how large the journal is.
_TRANSIENT: Final = frozenset(
    {
        *("plan", "drafts", "caches", "graphs", "first_graph", "journal_bytes", "due", "graph"),
        *("settled", "accepted", "progress_at", "cancel_sent", "prepared", "waits", "node"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outstanding:
    """What a run waits for: what has to be taken up when it is loaded."""

    #: Attempts that executors have: task and attempt.
    assigned: tuple[tuple[str, int], ...]
    #: Tasks that wait for an executor.
    queued: tuple[str, ...]
    #: Tasks that a concurrency cap holds back.
    held: tuple[str, ...]
    #: Tasks that wait for a person's approval.
    asking: tuple[str, ...]
    #: Tasks that wait for their next try.
    backing_off: tuple[str, ...]
    #: Sleeps.
    sleeping: tuple[str, ...]
    #: Tasks that child runs perform.
    children: tuple[str, ...]
    #: Questions that are open.
    questions: tuple[str, ...]
    #: Nodes that wait for a turn only, because a decision yielded before them.
    ready: tuple[str, ...]
    #: When something happens by itself next; None is never.
    due: Instant | None


def outstanding(state: RunState) -> Outstanding:
    """Return what the run waits for. A run that is final waits for nothing."""
    tasks = sorted(state.tasks.values(), key=lambda task: task.id)
    queued = [task for task in tasks if task.status is TaskStatus.QUEUED]
    return Outstanding(
        assigned=tuple(
            (task.id, task.attempt) for task in tasks if task.status is TaskStatus.ASSIGNED
        ),
        queued=tuple(task.id for task in queued if not task.held),
        held=tuple(task.id for task in queued if task.held),
        asking=tuple(task.id for task in tasks if task.status is TaskStatus.ASKING),
        backing_off=tuple(task.id for task in tasks if task.status is TaskStatus.BACKOFF),
        sleeping=tuple(task.id for task in tasks if task.status is TaskStatus.SLEEPING),
        children=tuple(task.id for task in tasks if task.status is TaskStatus.CHILD),
        questions=tuple(sorted(name for name, each in state.questions.items() if each.open)),
        ready=tuple(
            each.id
            for each in (*state.activations.values(), *state.spawned.values())
            if _is_ready(state, each)
        ),
        due=min(_due_times(state), default=None),
    )


def _is_ready(state: RunState, activation: Activation) -> bool:
    return state.stopping is None and is_ready(activation)


def goes_on_by_itself(state: RunState) -> bool:
    """Whether something is left to decide although nothing happens: only a decision that yields may leave a run so."""
    if state.final or state.stopping is not None or state.paused or state.is_pending:
        return False
    ended = all(activation.phase is Phase.ENDED for activation in state.activations.values())
    return ended or bool(outstanding(state).ready)


def _due_times(state: RunState) -> Iterator[Instant]:
    if state.stopping is not None:
        # Child runs have a grace of their own.
        if any(task.status is not TaskStatus.CHILD for task in state.tasks.values()):
            yield state.stopping.grace_at
        return
    if state.time_limit_at is not None and not state.final:
        yield state.time_limit_at
    if state.paused:
        # What else is due is looked at when the run goes on.
        return
    if state.is_pending and state.starts_at is not None:
        yield state.starts_at
    for question in state.questions.values():
        if question.open and question.interrupt.HasField("deadline_time"):
            yield from_timestamp(question.interrupt.deadline_time)
    for task in state.tasks.values():
        at = due_at(task)
        if at is not None:
            yield at


def check(state: RunState, events: Events) -> list[str]:
    """Return every way in which the state or its events break an invariant."""
    return [
        f"{name}: {trouble}"
        for name, invariant in INVARIANTS.items()
        for trouble in invariant(state, events)
    ]


def without_gaps(_: RunState, events: Events) -> list[str]:
    """I1: sequence numbers are 1, 2, 3… without gaps."""
    return [
        f"event {place} has the sequence {event.sequence}"
        for place, event in enumerate(events, 1)
        if event.sequence != place
    ]


def folds_to_itself(state: RunState, events: Events) -> list[str]:
    """I2: folding the stored events from scratch gives the state held."""
    try:
        first = state.first_graph or state.graph
        folded = fold(state.run_id, first, events, state.graphs)
    except Quarantined as error:
        return [str(error)]
    return difference(state, folded)


def ends_once(state: RunState, events: Events) -> list[str]:
    """I3: nothing follows a terminal event, and a run is final exactly if there is one."""
    final = [event.sequence for event in events if event.WhichOneof("kind") in _FINAL]
    if bool(final) != state.final:
        return [f"terminal events {final} in a run whose status is {state.status}"]
    return (
        [f"event {final[0]} is terminal and not the last"]
        if final not in ([], [len(events)])
        else []
    )


def tasks_end_once(_: RunState, events: Events) -> list[str]:
    """I4: a task's result is recorded at most once, and never after it ended otherwise."""
    ended = Counter(task_id for event in events for task_id in _ended(event))
    return [f"task {task_id} ended {count} times" for task_id, count in ended.items() if count > 1]


def follows_from_events(state: RunState, events: Events) -> list[str]:
    """I5: every outstanding task and question follows from stored events, and nothing else is outstanding."""
    attempts: dict[str, int] = {}
    questions: set[str] = set()
    for event in events:
        _follow(event, attempts, questions)
    if state.final:
        attempts = {}
    held = {task.id: _live_attempt(task) for task in state.tasks.values()}
    troubles = []
    if held != attempts:
        troubles.append(f"tasks {held} are outstanding, from the events follow {attempts}")
    if set(outstanding(state).questions) != questions:
        troubles.append(f"of the questions, from the events follow {sorted(questions)}")
    return troubles


def wakes_in_time(state: RunState, _: Events) -> list[str]:
    """I5: whatever is due is looked at in time. A look too many is fine, since timers are corrected lazily."""
    due, wakes = outstanding(state).due, next_due(state)
    if due is None or (wakes is not None and wakes <= due):
        return []
    return [f"something is due at {due}, the next look is at {wakes}"]


def knows_its_events(_: RunState, events: Events) -> list[str]:
    """I8: an unknown variant never becomes an event."""
    return [
        f"event {event.sequence} has no kind" for event in events if not event.WhichOneof("kind")
    ]


def answers_once(_: RunState, events: Events) -> list[str]:
    """I10: an interrupt is answered or closed at most once, and only after it was opened."""
    open_ids: set[str] = set()
    troubles = []
    for event in events:
        match event.WhichOneof("kind"):
            case "interrupt_opened":
                open_ids.add(event.interrupt_opened.question.interrupt_id)
            case "interrupt_answered" | "interrupt_closed" as kind:
                interrupt_id = getattr(event, kind).interrupt_id
                if interrupt_id not in open_ids:
                    troubles.append(f"event {event.sequence}: {interrupt_id} is not open")
                open_ids.discard(interrupt_id)
            case _:
                pass
    return troubles


def has_its_children(state: RunState, events: Events) -> list[str]:
    """I11: a child run begins at most once, while its task is outstanding; what is counted of child runs is right."""
    there: dict[str, bool] = {}
    troubles = []
    for event in events:
        for task_id in _ended(event):
            there.pop(task_id, None)
        match event.WhichOneof("kind"):
            case "task_scheduled" if event.task_scheduled.child_run_id:
                there[event.task_scheduled.task_id] = False
            case "child_started":
                task_id = event.child_started.task_id
                if there.get(task_id) is not False:
                    troubles.append(f"event {event.sequence}: the child of {task_id} can't begin")
                there[task_id] = True
            case "child_status_changed" if not there.get(event.child_status_changed.task_id):
                troubles.append(f"event {event.sequence}: there is no such child")
            case "run_forked":
                there = dict.fromkeys(there, False)
            case "run_completed" | "run_failed" | "run_cancelled" if there:
                troubles.append(f"event {event.sequence}: it ends before {', '.join(there)}")
            case _:
                pass
    return [*troubles, *_miscounted(state)]


def _miscounted(state: RunState) -> Iterator[str]:
    tasks = [task for task in state.tasks.values() if task.status is TaskStatus.CHILD]
    waiting = sum(task.child_waits for task in tasks)
    if (len(tasks), waiting) != (state.children, state.waiting_children):
        yield f"{len(tasks)} children, {waiting} waiting, not {state.children} and {state.waiting_children}"
    sleeping = sum(task.status is TaskStatus.SLEEPING for task in state.tasks.values())
    if sleeping != state.sleeping:
        yield f"{sleeping} tasks sleep, not {state.sleeping}"


def shows_its_status(state: RunState, _: Events) -> list[str]:
    """The status that is shown is the one that follows from what is outstanding."""
    if state.final or state.status == live_status(state):
        return []
    return [f"it shows {state.status}, and is {live_status(state)}"]


def waits_for_something(state: RunState, _: Events) -> list[str]:
    """A run that is not final, and has not yielded, waits for something that can be named."""
    if state.final or state.paused or state.is_pending:
        return []
    if state.tasks or state.open_questions or goes_on_by_itself(state):
        return []
    return ["no task and no question is outstanding, but not all nodes have ended"]


INVARIANTS: Final[dict[str, Callable[[RunState, Events], list[str]]]] = {
    "I1": without_gaps,
    "I2": folds_to_itself,
    "I3": ends_once,
    "I4": tasks_end_once,
    "I5": follows_from_events,
    "I5 in time": wakes_in_time,
    "I8": knows_its_events,
    "I10": answers_once,
    "I11": has_its_children,
    "status": shows_its_status,
    "rest": waits_for_something,
}


def difference(one: RunState, other: RunState) -> list[str]:
    """Return in what two states of one run differ, apart from what a fold need not give again."""
    return list(_differences("", one, other))


def _differences(path: str, one: object, other: object) -> Iterable[str]:
    if isinstance(one, _COMPARED) and type(one) is type(other):
        for each in fields(one):
            if each.name not in _TRANSIENT and not (path and each.name in _UPWARDS):
                name = f"{path}.{each.name}".lstrip(".")
                yield from _differences(name, getattr(one, each.name), getattr(other, each.name))
    elif isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other) and set(one) != set(other):
            yield f"{path}: {sorted(map(str, one))} and {sorted(map(str, other))}"
        else:
            for key, value in one.items():
                yield from _differences(f"{path}[{key}]", value, other[key])
    elif not _same(one, other):
        yield f"{path}: {one} and {other}"


def _same(one: object, other: object) -> bool:
    if hasattr(one, "entries") and hasattr(other, "entries"):
        # What is said of calls without a result stands in what a model reads only.
        return [each.data for each in one.entries] == [each.data for each in other.entries] and (
            one.arrange().messages == other.arrange().messages  # type: ignore[attr-defined]  # both are conversations
        )
    if isinstance(one, list | tuple) or hasattr(one, "popleft"):
        return [_plain(each) for each in one] == [_plain(each) for each in other]  # type: ignore[attr-defined]  # of the same kind
    return one == other


def _plain(value: object) -> object:
    return value.id if isinstance(value, Task) else value


def _ended(event: event_pb2.RunEvent) -> Iterable[str]:
    match event.WhichOneof("kind"):
        case "task_completed":
            yield event.task_completed.task_id
        case "task_failed" if not event.task_failed.HasField("retry_time"):
            yield event.task_failed.task_id
        case "task_cancelled":
            yield event.task_cancelled.task_id
        case _:
            pass


def _follow(event: event_pb2.RunEvent, attempts: dict[str, int], questions: set[str]) -> None:
    """Note what an event leaves outstanding: tasks with their live attempt, 0 for none, and open questions."""
    for task_id in _ended(event):
        attempts.pop(task_id, None)
    match event.WhichOneof("kind"):
        case "task_scheduled":
            attempts[event.task_scheduled.task_id] = event.task_scheduled.assignment.attempt
        case "task_assigned":
            attempts[event.task_assigned.task_id] = event.task_assigned.assignment.attempt
        case "task_failed" if event.task_failed.HasField("retry_time"):
            attempts[event.task_failed.task_id] = 0
        case "task_lost":
            attempts[event.task_lost.task_id] = 0
        case "interrupt_opened":
            questions.add(event.interrupt_opened.question.interrupt_id)
        case "interrupt_answered":
            questions.discard(event.interrupt_answered.interrupt_id)
        case "interrupt_closed":
            questions.discard(event.interrupt_closed.interrupt_id)
        case "run_forked":
            # Another run has these.
            attempts.update(dict.fromkeys(attempts, 0))
            questions.clear()
        case _:
            pass


def _live_attempt(task: Task) -> int:
    return task.attempt if task.status is TaskStatus.ASSIGNED else 0


__all__ = ["INVARIANTS", "Outstanding", "check", "difference", "goes_on_by_itself", "outstanding"]
