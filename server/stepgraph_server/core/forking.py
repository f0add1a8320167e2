"""A run that begins with the prefix of another.

Rules: what had ended stays as it is and is not done again. What was outstanding is outstanding anew: tasks without attempts and
tries, since their executors know them under another run; questions under new ids, since the old ones are the other run's.
Everything follows from the prefix and one event, so a fork folds like any run; only the graph of its later part comes in from
outside, because an event says which one it is and not what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from stepgraph.v1 import event_pb2, task_pb2
from stepgraph_server.core import interrupts, steps, tasks, tool_approvals
from stepgraph_server.core.errors import Refused, Violation
from stepgraph_server.core.inputs import Answer, StartChild
from stepgraph_server.core.instants import from_timestamp
from stepgraph_server.core.json_text import JsonTextError
from stepgraph_server.core.preparing import NotPrepared, prepare
from stepgraph_server.core.results import accept_result
from stepgraph_server.core.scheduling import reset_policies
from stepgraph_server.core.spawning import bodies, body_of
from stepgraph_server.core.state import TaskStatus, Tokens, carry
from stepgraph_server.core.status import is_ending, run_ended
from stepgraph_server.core.step_replies import accept_reply
from stepgraph_server.core.templates import RenderError
from stepgraph_server.core.values import ValueNotReadable, check_update

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stepgraph.v1 import interrupt_pb2, state_pb2
    from stepgraph_server.core.graph import CompiledGraph, CompiledNode
    from stepgraph_server.core.inputs import Fork
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.state import Activation, Carried, RunState, Task
    from stepgraph_server.core.turn import Turn


def on_fork(turn: Turn, fork: Fork) -> None:
    """Begin the new run, on the state that the prefix gives.

    Raises:
        Refused: RUN_ENDED: nothing would follow. GRAPH_MISMATCH: the other graph lacks what is live. ANSWER_INVALID or
            INVALID_REQUEST: a change does not fit what is outstanding.
    """
    state = turn.state
    if is_ending(state):
        consequence = f"nothing would follow event {state.sequence}; fork from an earlier one"
        raise run_ended(state, consequence)
    if fork.graph is not None:
        _refuse_if_mismatched(state, fork.graph)
        state.graphs[fork.graph.digest] = fork.graph
    _refuse_if_wrong(fork.forked.patch, fork.graph or state.graph)
    asked = {
        _asker(question.interrupt): name
        for name, question in state.questions.items()
        if question.open
    }
    _refuse_if_unasked(state, fork, asked)
    results = _accepted(turn, fork)
    questions = [state.questions[name].interrupt for name in asked.values()]
    turn.emit("run_forked", fork.forked)
    _refuse_if_unprepared(state, fork)
    for question in questions:
        if question.task_id:
            # What would be called may be another call now.
            tool_approvals.ask(turn, state.tasks[question.task_id])
        else:
            interrupts.reopen(turn, question, keep_token=fork.keep_tokens)
    _answer(turn, fork)
    for task, result in results:
        event = turn.next_event()
        event.task_completed.task_id = task.id
        event.task_completed.result.CopyFrom(result)
        tasks.end(turn, task, event)
    for task in list(state.tasks.values()):
        if task.status is TaskStatus.QUEUED and not task.held:
            tasks.assign(turn, task)
        elif task.status is TaskStatus.CHILD:
            # Another id of a run, another id of the child run.
            turn.command(StartChild(task=task))
    steps.line_up(turn)


def _answer(turn: Turn, fork: Fork) -> None:
    """Give the answers, which were checked, to the questions as they are asked again."""
    answers = dict(fork.answers)
    for question in [each.interrupt for each in turn.state.questions.values() if each.open]:
        if _asker(question) in answers:
            given = Answer(
                interrupt_id=question.interrupt_id,
                answer=answers[_asker(question)],
                answered_by=fork.answered_by,
            )
            interrupts.on_answer(turn, given)


def _refuse_if_unprepared(state: RunState, fork: Fork) -> None:
    """Refuse changes with which an outstanding task has no input any more.

    The one refusal that comes when something was emitted already: what an input would be shows in the changed state only, and that
    state is nobody's yet.
    """
    given = dict(fork.results)
    for task in state.tasks.values():
        if task.id in given or task.status is TaskStatus.SLEEPING:
            continue
        try:
            prepare(state, task)
        except (NotPrepared, RenderError, ValueNotReadable, JsonTextError) as error:
            path = "patch" if fork.forked.HasField("patch") else "graph"
            what = f"with it the input of {task.id} can't be made: {error}"
            _refuse_change(path, what, "", [])


def _asker(question: interrupt_pb2.Interrupt) -> str:
    """Return what asks: the activation, or the task that needs approval, of which one activation may have several."""
    return question.task_id or question.activation_id


def _refuse_if_mismatched(state: RunState, graph: CompiledGraph) -> None:
    mismatched = sorted(
        {
            node.id
            for node in (*_live_nodes(state), *bodies(state))
            if node.id not in graph.nodes or _kind(graph.nodes[node.id]) != _kind(node)
        }
    )
    if mismatched:
        message = (
            "of the nodes that are live at this event, the other graph version lacks, by id and kind of action: "
            f"{', '.join(mismatched)}; fork from another event, or keep them"
        )
        metadata = {"nodes": ",".join(mismatched)}
        raise Refused("GRAPH_MISMATCH", message, metadata=metadata)


def _live_nodes(state: RunState) -> Iterator[CompiledNode]:
    yield from (activation.node for activation in state.activations.values())
    yield from (state.graph.nodes[join] for join in state.arrivals)


def _kind(node: CompiledNode) -> str | None:
    return node.definition.action.WhichOneof("kind")


def _refuse_if_wrong(patch: state_pb2.StateUpdate, graph: CompiledGraph) -> None:
    problems = check_update(patch, "patch")
    if patch.paradigm and patch.paradigm not in graph.paradigms:
        known = ", ".join(sorted(graph.paradigms)) or "none"
        message = f"the graph has no paradigm {patch.paradigm!r}; it has {known}"
        problems.append(Violation(path="patch.paradigm", message=message))
    if problems:
        first = problems[0]
        raise Refused(
            "INVALID_REQUEST",
            f"{first.path}: {first.message}",
            metadata={"field": first.path},
            violations=problems,
        )


def _refuse_if_unasked(state: RunState, fork: Fork, asked: Mapping[str, str]) -> None:
    for number, (activation_id, answer) in enumerate(fork.answers):
        path = f"answers[{number}]"
        if activation_id not in asked:
            _refuse_change(path, f"{activation_id} asks nothing", "asks", sorted(asked))
        if activation_id in dict(fork.answers[:number]):
            _refuse_change(path, f"{activation_id} is answered twice", "", [])
        problem = interrupts.problem_with(state.questions[asked[activation_id]], answer)
        if problem is not None:
            metadata = {"interrupt_id": asked[activation_id], "field": problem.path}
            raise Refused(
                "ANSWER_INVALID", problem.message, metadata=metadata, violations=[problem]
            )


def _accepted(turn: Turn, fork: Fork) -> list[tuple[Task, task_pb2.TaskResult]]:
    """Return the results as they are to be recorded."""
    accepted: dict[str, tuple[Task, task_pb2.TaskResult]] = {}
    for task_id, given in fork.results:
        path, task = f"results[{task_id}]", turn.state.tasks.get(task_id)
        if task is None:
            there = sorted(turn.state.tasks)
            _refuse_change(path, f"{task_id} is no task", "is outstanding", there)
        if task_id in accepted:
            _refuse_change(path, "it is given twice", "", [])
        result = task_pb2.TaskResult()
        result.CopyFrom(given)
        problem = accept_result(task, result, turn.world.limits)
        if problem is None and task.poll:
            problem = accept_reply(turn.state, task, result.step, turn.world.limits)
        if problem is not None:
            _refuse_change(path, problem.message, "", [])
        accepted[task_id] = (task, result)
    return list(accepted.values())


def _refuse_change(path: str, what: str, verb: str, there: list[str]) -> NoReturn:
    shown = f" at this event; what {verb}: {', '.join(there[:10]) or 'nothing'}" if verb else ""
    message = f"{what}{shown}"
    violation = Violation(path=path, message=message)
    raise Refused(
        "INVALID_REQUEST", f"{path}: {message}", metadata={"field": path}, violations=[violation]
    )


# Facts


def apply_run_forked(state: RunState, event: event_pb2.RunEvent) -> None:
    """What is outstanding is outstanding anew, in another run; its limits count from here."""
    fact = event.run_forked
    state.run_id = state.root_run_id = fact.run_id
    state.labels = dict(fact.labels)
    state.traceparent, state.tracestate = fact.traceparent, fact.tracestate
    state.max_iterations = fact.max_iterations
    state.forked_at_iteration = state.iterations
    state.token_limit = fact.token_limit
    state.tokens = Tokens()
    state.budget_at_start = state.budget_remaining
    state.time_limit_at = None
    if fact.HasField("time_limit_time"):
        state.time_limit_at = from_timestamp(fact.time_limit_time)
        state.due.arm(state.time_limit_at, "run")
    state.paused = state.paused_by_parent = False
    # It is nobody's child, whoever it is a fork of.
    state.parent, state.depth = None, 0
    state.resolved.update({each.reference: each.graph for each in fact.resolved_graphs})
    state.starts_at = None
    # Told by the event alone: the ids of its trace are made of this, and whoever folds knows no more.
    state.started_at = from_timestamp(event.time)
    state.remembered.clear()
    state.caches.clear()
    if fact.HasField("graph"):
        state.graph_version = fact.graph
        _exchange(state, state.graphs[fact.graph.digest])
    _take_back_questions(state)
    for task in state.tasks.values():
        # Time goes on for what sleeps.
        if task.status is TaskStatus.ASKING:
            # Asked again; a call may be another now.
            task.prepared = None
        elif task.status is not TaskStatus.SLEEPING:
            _begin_again(task, state.updated_at)
            tasks.arm(state, task)
    state.waiting_children = 0
    for activation in (*state.activations.values(), *state.spawned.values()):
        activation.spent = 0
        if activation.program is not None:
            # Whoever has its turns has them of the other run.
            activation.program.forget_holder()
    if fact.HasField("patch"):
        _patch(state, fact.patch)


def _take_back_questions(state: RunState) -> None:
    """Forget open questions: they are those of the other run, and are opened again under new ids."""
    for interrupt_id, question in list(state.questions.items()):
        if question.open:
            del state.questions[interrupt_id]
            state.interrupt_points.remove(interrupt_id)
    state.open_questions = 0
    state.external_tokens.clear()


def _begin_again(task: Task, now: Instant) -> None:
    if task.status is not TaskStatus.CHILD:
        task.status = TaskStatus.QUEUED
    task.child_started = task.child_waits = False
    task.attempt = task.tries = task.losses = 0
    task.executor_id = task.instance = task.prefers = ""
    task.scheduled_at = task.queued_at = now
    task.assigned_at = task.retry_at = task.last_failure = task.progress_at = None
    task.unclaimed = task.waits = task.accepted = task.cancel_sent = False
    task.prepared = None


def _exchange(state: RunState, graph: CompiledGraph) -> None:
    """Go on by another graph. The sets of nodes are bits that only mean something in one graph, so they are made again."""
    old, state.graph = state.graph, graph
    entered = [node.id for node in old.members(state.entered)]
    state.entered = sum(graph.nodes[each].bit for each in entered if each in graph.nodes)
    state.possible = 0
    for activation in state.activations.values():
        _exchange_node(activation, graph.nodes[activation.node.id])
    # In the order in which they began, so what spawned something is exchanged before it.
    for child in state.spawned.values():
        _exchange_node(child, body_of(state, child))
    for node in _live_nodes(state):
        state.possible |= node.bit | node.reach
    for task in state.tasks.values():
        reset_policies(task)


def _exchange_node(activation: Activation, node: CompiledNode) -> None:
    activation.node = node
    activation.settled = None


def _patch(state: RunState, patch: state_pb2.StateUpdate) -> None:
    for name, value in patch.variables.items():
        state.variables[name] = value
    for name in patch.delete_variables:
        state.variables.pop(name, None)
    for message in patch.messages:
        state.conversation.append(message)
    state.terminate = state.terminate or patch.should_terminate
    for activation in state.activations.values():
        activation.carried = _patched(activation.carried, patch)
        activation.entered_with = _patched(activation.entered_with, patch)
    state.carried = _patched(state.carried, patch)


def _patched(carried: Carried, patch: state_pb2.StateUpdate) -> Carried:
    if patch.HasField("decision"):
        carried = carry(carried, decision=patch.decision)
    return carry(carried, paradigm=patch.paradigm) if patch.HasField("paradigm") else carried
