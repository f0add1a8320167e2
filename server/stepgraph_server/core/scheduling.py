"""Tasks as they begin: what is recorded of them, and what they get of their node and of their effect.

Rules: a task that finds room is scheduled and assigned by one event. What its event does not say follows from the node and, for a
step program, from the reply that is recorded, so a fold makes the same task of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import event_pb2
from stepgraph_server.core import tasks, tool_approvals
from stepgraph_server.core.failures import failure
from stepgraph_server.core.inputs import StartChild
from stepgraph_server.core.instants import to_timestamp
from stepgraph_server.core.policies import (
    NO_LIMITS,
    RetryPolicy,
    resolve_limits,
    resolve_retry,
)
from stepgraph_server.core.requirements import both_selectors, requirement_message
from stepgraph_server.core.state import Activation, RunState, Task, TaskStatus, ToolSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph.v1 import transition_pb2
    from stepgraph_server.core.actions.step import Child, Effect, Prepared
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.core.turn import Turn

#: What a sleep and a child run need of an executor: nothing.
SLEEP_KEY: Final = ("sleep",)
CHILD_KEY: Final = ("graph",)


def schedule(turn: Turn, activation: Activation, effect: Effect, number: int, index: int) -> None:
    """Record a task for effect `index` of the activation's turn `number`, with its first assignment if there is room."""
    task_id = f"{activation.id}/t{number}/e{index}"
    task = new_task(turn.state, activation, task_id=task_id, now=turn.now, key=effect.key)
    task.turn = number
    task.index = index
    task.label = effect.label
    task.call_id = effect.call_id
    task.prepared = effect.prepared
    if effect.options is not None:
        apply_options(task, effect.options)
    if effect.streaming is not None:
        task.streaming = effect.streaming
    take_approval(turn.state, task)
    tools_digest = "" if effect.tools is None else _record_tools(turn, effect.tools)
    event = turn.next_event()
    fact = event.task_scheduled
    fact.task_id = task_id
    fact.label = effect.label
    if effect.call_id:
        fact.call_id = effect.call_id
    if effect.message_count:
        fact.message_count = effect.message_count
    if effect.prompt_digest:
        fact.prompt_digest = effect.prompt_digest
    if tools_digest:
        fact.tools_digest = tools_digest
    _record(turn, task, event, hold=activation.is_full)


def schedule_condition(turn: Turn, activation: Activation, edge_id: str, name: str) -> None:
    """Record a task that decides the custom condition of an edge."""
    task = new_task(
        turn.state,
        activation,
        task_id=f"{activation.id}/c/{edge_id}",
        now=turn.now,
        key=("condition", name),
    )
    task.edge_id = edge_id
    task.label = f"condition {name}"
    event = turn.next_event()
    event.task_scheduled.task_id = task.id
    event.task_scheduled.label = task.label
    _record(turn, task, event, hold=False)


def schedule_poll(
    turn: Turn,
    activation: Activation,
    program: str,
    number: int,
    prepared: Callable[[Task], Prepared],
) -> None:
    """Record a task that polls a step program for its turn `number`."""
    task_id = f"{activation.id}/t{number}/poll"
    task = new_task(turn.state, activation, task_id=task_id, now=turn.now, key=("step", program))
    task.turn = number
    task.label = f"step {program}"
    task.prepared = prepared(task)
    mark_poll(task)
    event = turn.next_event()
    event.task_scheduled.task_id = task_id
    event.task_scheduled.label = task.label
    _record(turn, task, event, hold=False)


def mark_poll(task: Task) -> None:
    """Make a new task one that polls: it would best go to the process that answered last."""
    task.poll = True
    program = task.activation.program
    if program is not None:
        task.prefers = program.instance


def schedule_sleep(  # what a sleep is and where it stands
    turn: Turn, activation: Activation, label: str, end: Instant, number: int, index: int
) -> None:
    """Record that a sleep has begun, and that it is over if it is already."""
    task_id = f"{activation.id}/t{number}/e{index}"
    task = new_task(turn.state, activation, task_id=task_id, now=turn.now, key=SLEEP_KEY)
    task.turn, task.index, task.label = number, index, label
    mark_sleep(task, end)
    event = turn.next_event()
    fact = event.task_scheduled
    fact.task_id = task_id
    fact.label = label
    fact.due_time.CopyFrom(to_timestamp(end))
    turn.state.drafts[task.id] = task
    turn.record(event)
    if turn.now >= end:
        tasks.wake(turn, task)


def mark_sleep(task: Task, end: Instant) -> None:
    """Make a new task a sleep."""
    task.status = TaskStatus.SLEEPING
    task.limits = NO_LIMITS
    task.wakes_at = end


def schedule_child(
    turn: Turn, activation: Activation, child: Child, number: int, index: int
) -> None:
    """Record that a child run performs a task, and want it created; too deep in its tree, it fails at once."""
    task_id = f"{activation.id}/t{number}/e{index}"
    state = turn.state
    task = new_task(state, activation, task_id=task_id, now=turn.now, key=CHILD_KEY)
    task.turn, task.index, task.label = number, index, child.label
    task.call_id, task.prepared = child.call_id, child
    mark_child(task)
    if child.options is not None:
        apply_options(task, child.options)
    event = turn.next_event()
    fact = event.task_scheduled
    fact.task_id = task_id
    fact.label = child.label
    fact.call_id = child.call_id
    fact.child_run_id = tasks.child_run_id(state, task)
    state.drafts[task.id] = task
    turn.record(event)
    if state.depth < turn.world.limits.max_depth:
        turn.command(StartChild(task=task))
        return
    message = (
        f"{child.label} did not start: run {state.run_id} has {state.depth} runs above it, and no run may have more; "
        "end the recursion earlier"
    )
    details = {"max_depth": str(turn.world.limits.max_depth)}
    why = failure("RUN_TREE_TOO_DEEP", message, source=task.id, details=details)
    tasks.fail_attempt(turn, task, why, for_good=True)


def mark_child(task: Task) -> None:
    """Make a new task one that a child run performs. It has its own limits, and its nodes have their own tries."""
    task.status = TaskStatus.CHILD
    task.limits, task.retry = NO_LIMITS, RetryPolicy(max_tries=1)


def reset_policies(task: Task) -> None:
    """Give an outstanding task the tries and limits of its node as it is now, and what its effect says of itself."""
    node = task.activation.node
    if task.status in (TaskStatus.SLEEPING, TaskStatus.CHILD):
        return
    task.retry, task.limits = node.retry, node.limits
    program = task.activation.program
    if program is not None and not task.poll and not task.edge_id:
        effect = program.open[task.turn, task.index].effect
        apply_options(task, effect.options)


def take_approval(state: RunState, task: Task) -> None:
    """Let the answer to a node's question about its call count as the approval of that call."""
    activation = task.activation
    if activation.answer is None or task.key[0] != "tool":
        return
    question = state.questions[activation.question_id].interrupt
    if question.HasField("tool"):
        task.approved = tool_approvals.approved_digest(question, activation.answer)


def apply_options(task: Task, options: transition_pb2.EffectOptions) -> None:
    """Put what an effect says of its tries, limits and executors over what its node says."""
    if task.status is not TaskStatus.CHILD:
        if options.HasField("retry"):
            task.retry = resolve_retry(task.retry, options.retry)
        if options.HasField("limits"):
            task.limits = resolve_limits(task.limits, options.limits)
    if options.selector:
        task.selector = both_selectors(task.selector, tuple(sorted(options.selector.items())))


def new_task(
    state: RunState, activation: Activation, *, task_id: str, now: Instant, key: tuple[str, ...]
) -> Task:
    """Build a task that waits, with what its node says of tries, limits and executors."""
    node = activation.node
    selector = both_selectors(state.selector, node.selector) if node.selector else state.selector
    # Only a model call shows progress, not a condition of the same node.
    streaming = node.streams and key[0] == "llm"
    requirement = requirement_message(key)
    return Task(
        task_id,
        activation,
        key,
        requirement,
        selector,
        node.retry,
        node.limits,
        streaming,
        now,
        now,
    )


def _record(turn: Turn, task: Task, event: event_pb2.RunEvent, *, hold: bool) -> None:
    fact = event.task_scheduled
    fact.requirement.CopyFrom(task.requirement)
    asks = tool_approvals.is_needed(turn, task)
    placement = None if hold or asks else turn.world.place(task)
    if placement is not None:
        assignment = fact.assignment
        assignment.attempt = 1
        assignment.executor_id = placement.executor_id
        assignment.instance = placement.instance
    turn.state.drafts[task.id] = task
    turn.record(event)
    if placement is not None:
        tasks.send(turn, task)
    elif asks:
        tool_approvals.ask(turn, task)
    elif not hold:
        tasks.wait_for_room(turn, task)


def _record_tools(turn: Turn, tools: ToolSet) -> str:
    """Record a set of tools that this run has not offered yet; return its digest."""
    if tools.digest not in turn.state.tool_sets:
        turn.emit(
            "tools_offered",
            event_pb2.ToolsOffered(
                digest=tools.digest,
                tools=tools.definitions,
                tool_digests=[
                    tools.offered[definition.name].digest for definition in tools.definitions
                ],
                approval_tools=[
                    name for name, tool in tools.offered.items() if tool.requires_approval
                ],
            ),
        )
    return tools.digest
