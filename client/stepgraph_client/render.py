"""A run's events as lines for people.

Rules: `Narrator` is pure: events in, lines out, and the same events give the same lines. It remembers only what later events
refer to. An event that this version does not know gives no line. Who writes them is `event_printer`.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from stepgraph.v1.event_pb2 import EdgeVerdict, RunEvent, TransientEvent
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import wording
from stepgraph_client.errors import failure_text
from stepgraph_client.lines import Line, Piece, Tone
from stepgraph_client.task_errors import EXECUTOR_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from stepgraph.v1.event_pb2 import EdgeOutcome
    from stepgraph.v1.failure_pb2 import Failure
    from stepgraph.v1.interrupt_pb2 import Interrupt
    from stepgraph.v1.task_pb2 import TaskAssignment
    from stepgraph_client.lines import Telling
    from stepgraph_client.watching import Event


class Narrator:
    """Tells what happens in one run. `command` is how people call the command line, for what they are told to type."""

    def __init__(self, command: str = "stepgraph") -> None:
        self._command = command
        self._run_id = ""
        self._labels: dict[str, str] = {}
        # How many characters of each stream of a live attempt were told, by task and then by stream.
        self._shown: dict[str, dict[str, int]] = {}

    def tell(self, event: Event) -> Iterator[Telling]:
        """Yield what is to be said of an event; often one line, sometimes none."""
        if isinstance(event, TransientEvent):
            yield from self._transient(event)
            return
        teller = _TELLERS.get(event.WhichOneof("kind") or "")
        if teller is not None:
            yield from teller(self, event)

    # What is shown while it happens ------------------------------------------------------------------------------

    def _transient(self, event: TransientEvent) -> Iterator[Telling]:
        stream = f"{event.task_id}#{event.attempt}"
        match event.WhichOneof("kind"):
            case "progress":
                yield from self._progress(stream, event)
            case "text_so_far":
                # After a lost connection most of it was told before.
                so_far = event.text_so_far
                for name, text in ((f"{stream} thinking", so_far.thinking), (stream, so_far.text)):
                    told = self._shown.get(event.task_id, {}).get(name, 0)
                    yield from self._piece(event.task_id, name, text[told:])
            case "attempt_discarded":
                self._shown.pop(event.task_id, None)
                yield Line(
                    text=f"  {who(event.task_id)}: what was shown of it does not count; it starts anew",
                    tone=Tone.WARNING,
                )
            case "progress_dropped":
                yield Line(text="  … some of it was not shown", tone=Tone.QUIET)
            case _:
                return

    def _progress(self, stream: str, event: TransientEvent) -> Iterator[Telling]:
        progress = event.progress
        match progress.WhichOneof("kind"):
            case "text":
                yield from self._piece(event.task_id, stream, progress.text.text)
            case "thinking":
                name = f"{stream} thinking"
                yield from self._piece(event.task_id, name, progress.thinking.text)
            case "tool_args":
                args = progress.tool_args
                start = f"{args.tool_name} " if args.tool_name else ""
                name = f"{stream} call {args.call_index}"
                yield Piece(stream=name, text=start + args.args, tone=Tone.QUIET)
            case "custom":
                text = wording.value_text(progress.custom.value)
                yield Line(text=f"  {who(event.task_id)}: {text}", tone=Tone.QUIET)
            case _:
                return

    def _piece(self, task_id: str, stream: str, text: str) -> Iterator[Piece]:
        if text:
            shown = self._shown.setdefault(task_id, {})
            shown[stream] = shown.get(stream, 0) + len(text)
            tone = Tone.QUIET if stream.endswith(" thinking") else Tone.PLAIN
            yield Piece(stream=stream, text=text, tone=tone)

    # The run ------------------------------------------------------------------------------------------------------

    def _run_started(self, event: RunEvent) -> Iterator[Telling]:
        started = event.run_started
        self._run_id = started.run_id
        graph = wording.graph_text(started.graph)
        labels = wording.labels_text(started.labels)
        yield Line(
            text=f"run {started.run_id} of {graph}{f' ({labels})' if labels else ''}",
            tone=Tone.HEADING,
        )
        if started.HasField("delay_until_time"):
            yield Line(text=f"  it begins at {wording.time_text(started.delay_until_time)}")

    def _superstep_started(self, event: RunEvent) -> Iterator[Telling]:
        started = event.superstep_started
        yield Line(
            text=f"{started.superstep}. {wording.names_text(started.nodes)}", tone=Tone.HEADING
        )

    def _run_paused(self, event: RunEvent) -> Iterator[Telling]:
        yield Line(
            text=f"paused{_because(event.run_paused.reason)}; go on with "
            f"`{self._command} runs unpause {self._run_id}`",
            tone=Tone.WARNING,
        )

    def _run_unpaused(self, _event: RunEvent) -> Iterator[Telling]:
        yield Line(text="goes on")

    def _run_stopping(self, event: RunEvent) -> Iterator[Telling]:
        stopping = event.run_stopping
        cancelled = stopping.outcome == RunStatus.RUN_STATUS_CANCELLED
        word = "is being cancelled" if cancelled else "is being stopped"
        yield Line(text=f"{word}: {failure_text(stopping.failure)}", tone=Tone.WARNING)

    def _run_forked(self, event: RunEvent) -> Iterator[Telling]:
        forked = event.run_forked
        self._run_id = forked.run_id
        yield Line(
            text=f"run {forked.run_id}, forked from {forked.origin.run_id} after event {forked.origin.sequence}",
            tone=Tone.HEADING,
        )

    def _run_completed(self, event: RunEvent) -> Iterator[Telling]:
        result = event.run_completed.result
        where = f" at {result.terminal_node}" if result.terminal_node else ""
        yield Line(text=f"completed{where} after {_counted(result.iterations)}", tone=Tone.GOOD)
        if result.HasField("output"):
            yield from (
                Line(text=each) for each in wording.full_value_text(result.output).splitlines()
            )

    def _run_failed(self, event: RunEvent) -> Iterator[Telling]:
        failed = event.run_failed
        yield Line(
            text=f"failed after {_counted(failed.result.iterations)}: {failure_text(failed.failure)}",
            tone=Tone.BAD,
        )
        yield from _causes(failed.failure)

    def _run_cancelled(self, event: RunEvent) -> Iterator[Telling]:
        cancelled = event.run_cancelled
        yield Line(text=f"cancelled: {failure_text(cancelled.failure)}", tone=Tone.WARNING)

    def _limit_neared(self, event: RunEvent) -> Iterator[Telling]:
        near = event.limit_neared
        yield Line(
            text=f"  near a limit: {near.used:,} of {near.maximum:,} {near.limit_name.replace('_', ' ')}",
            tone=Tone.WARNING,
        )

    # Nodes --------------------------------------------------------------------------------------------------------

    def _node_skipped(self, event: RunEvent) -> Iterator[Telling]:
        skipped = event.node_skipped
        yield Line(
            text=f"  {skipped.node_id} is left out: {wording.skip_text(skipped.reason)}",
            tone=Tone.QUIET,
        )

    def _node_completed(self, event: RunEvent) -> Iterator[Telling]:
        done = event.node_completed
        waits = " while executors decide its conditions" if done.edges_pending else ""
        yield Line(
            text=f"  {who(done.activation_id) or done.node_id} is done{_followed(done.edges)}{waits}",
            tone=Tone.GOOD,
        )

    def _node_failed(self, event: RunEvent) -> Iterator[Telling]:
        failed = event.node_failed
        yield Line(
            text=f"  {who(failed.activation_id) or failed.node_id} failed: "
            f"{failure_text(failed.failure)}{_followed(failed.edges)}",
            tone=Tone.BAD,
        )
        # The code that executors give to whatever a function raises is none that its author has ever seen.
        if failed.failure.code == EXECUTOR_ERROR and not _followed(failed.edges):
            yield Line(
                text=f"  an edge with `when: {{error_occurred: [{EXECUTOR_ERROR}]}}` would go on from here",
                tone=Tone.QUIET,
            )

    def _node_cancelled(self, event: RunEvent) -> Iterator[Telling]:
        cancelled = event.node_cancelled
        yield Line(
            text=f"  {who(cancelled.activation_id) or cancelled.node_id} was stopped"
            f"{_because(cancelled.reason)}",
            tone=Tone.QUIET,
        )

    def _edges_evaluated(self, event: RunEvent) -> Iterator[Telling]:
        evaluated = event.edges_evaluated
        text = _followed(evaluated.edges) or ", no edge is followed"
        yield Line(text=f"  {who(evaluated.activation_id)} was decided{text}")

    def _variable_overwritten(self, event: RunEvent) -> Iterator[Telling]:
        written = event.variable_overwritten
        yield Line(
            text=f"  {wording.names_text(written.node_ids)} all wrote {written.variable}; the last one's value was kept",
            tone=Tone.WARNING,
        )

    # Tasks --------------------------------------------------------------------------------------------------------

    def _tools_offered(self, event: RunEvent) -> Iterator[Telling]:
        names = wording.names_text(each.name for each in event.tools_offered.tools)
        if names:
            yield Line(text=f"  offers the tools {names}", tone=Tone.QUIET)

    def _task_scheduled(self, event: RunEvent) -> Iterator[Telling]:
        task = event.task_scheduled
        self._labels[task.task_id] = task.label or wording.requirement_text(task.requirement)
        if task.HasField("assignment"):
            yield Line(text=f"  {self._task(task.task_id)} → {_assignee(task.assignment)}")
        elif task.HasField("due_time"):
            until = wording.time_text(task.due_time)
            yield Line(text=f"  {self._task(task.task_id)}, over at {until}", tone=Tone.QUIET)
        elif not task.child_run_id:
            # Or for a person who has to approve it, whose question follows at once.
            yield Line(text=f"  {self._task(task.task_id)} waits to be given out")

    def _task_assigned(self, event: RunEvent) -> Iterator[Telling]:
        task = event.task_assigned
        yield Line(text=f"  {self._task(task.task_id)} → {_assignee(task.assignment)}")

    def _task_completed(self, event: RunEvent) -> Iterator[Telling]:
        task = event.task_completed
        result = task.result
        # What was streamed was read already; only what it cost, and the calls that it wants, are news.
        streamed = f"{task.task_id}#{task.attempt}" in self._shown.pop(task.task_id, {})
        calls = any(each.WhichOneof("kind") == "tool_call" for each in result.llm.message.content)
        if streamed and not calls and result.WhichOneof("kind") == "llm":
            text = wording.usage_text(result.llm.usage) or "answered"
        else:
            text = wording.result_text(result)
        failed = result.WhichOneof("kind") == "tool" and result.tool.is_error
        yield Line(
            text=f"  {self._task(task.task_id, forget=True)}: {text}",
            tone=Tone.WARNING if failed else Tone.PLAIN,
        )

    def _task_failed(self, event: RunEvent) -> Iterator[Telling]:
        task = event.task_failed
        self._shown.pop(task.task_id, None)
        again = task.HasField("retry_time")
        if again:
            delay = wording.span_text(wording.seconds_between(event.time, task.retry_time))
            then = f"; try {task.tries + 1} in {delay}"
        else:
            then = f"; given up after {task.tries} tries" if task.tries > 1 else ""
        yield Line(
            text=f"  {self._task(task.task_id, forget=not again)} failed: "
            f"{failure_text(task.failure)}{then}",
            tone=Tone.WARNING if again else Tone.BAD,
        )

    def _task_lost(self, event: RunEvent) -> Iterator[Telling]:
        task = event.task_lost
        yield Line(
            text=f"  {self._task(task.task_id)} was lost: {wording.loss_text(task.reason)}"
            f"{_because(task.message)}; it is given to another",
            tone=Tone.WARNING,
        )

    def _task_cancelled(self, event: RunEvent) -> Iterator[Telling]:
        task = event.task_cancelled
        self._shown.pop(task.task_id, None)
        yield Line(
            text=f"  {self._task(task.task_id, forget=True)} was cancelled{_because(task.reason)}",
            tone=Tone.QUIET,
        )

    def _task_unclaimed(self, event: RunEvent) -> Iterator[Telling]:
        task = event.task_unclaimed
        labels = wording.labels_text(task.selector)
        bearing = f" with the labels {labels}" if labels else ""
        until = (
            f" (it fails at {wording.time_text(task.queue_limit_time)})"
            if task.HasField("queue_limit_time")
            else ""
        )
        yield Line(
            text=f"  nobody can take {self._task(task.task_id)}: start an executor for "
            f"{wording.requirement_text(task.requirement)}{bearing}{until}",
            tone=Tone.WARNING,
        )

    # Questions, signals, children ----------------------------------------------------------------------------------

    def _interrupt_opened(self, event: RunEvent) -> Iterator[Telling]:
        yield from question_lines(event.interrupt_opened.question, self._command)

    def _interrupt_answered(self, event: RunEvent) -> Iterator[Telling]:
        answered = event.interrupt_answered
        # That a signal came is told by its own event.
        if not answered.answer.HasField("signals"):
            who = "the deadline" if answered.by_deadline else (answered.answered_by or "someone")
            yield Line(text=f"  answered by {who}: {wording.answer_text(answered.answer)}")

    def _interrupt_closed(self, event: RunEvent) -> Iterator[Telling]:
        closed = event.interrupt_closed
        yield Line(
            text=f"  question {closed.interrupt_id} is closed{_because(closed.reason)}",
            tone=Tone.QUIET,
        )

    def _signal_received(self, event: RunEvent) -> Iterator[Telling]:
        signal = event.signal_received
        payload = wording.value_text(signal.payload)
        yield Line(text=f"  signal {signal.name}{f': {payload}' if payload else ''}")

    def _child_started(self, event: RunEvent) -> Iterator[Telling]:
        child = event.child_started
        yield Line(
            text=f"  {who(child.task_id)} runs {wording.graph_text(child.graph)} as {child.run_id}; "
            f"see `{self._command} runs watch {child.run_id}`"
        )

    def _child_status_changed(self, event: RunEvent) -> Iterator[Telling]:
        child = event.child_status_changed
        does = "waits" if child.status == RunStatus.RUN_STATUS_SUSPENDED else "goes on"
        yield Line(text=f"  {who(child.task_id)}: {child.run_id} {does}", tone=Tone.QUIET)

    def _graphs_resolved(self, _event: RunEvent) -> Iterator[Telling]:
        # Which version is meant is said when a child run of it starts.
        yield from ()

    def _task(self, task_id: str, *, forget: bool = False) -> str:
        """Return who does what: "think · llm claude". Labels of tasks that are over are let go."""
        label = self._labels.pop(task_id, "") if forget else self._labels.get(task_id, "")
        return f"{who(task_id)} · {label}" if label else who(task_id)


_TELLERS: Mapping[str, Callable[[Narrator, RunEvent], Iterable[Telling]]] = {
    name.removeprefix("_"): teller
    for name, teller in vars(Narrator).items()
    if name.removeprefix("_") in RunEvent.DESCRIPTOR.fields_by_name
}


def question_lines(question: Interrupt, command: str = "stepgraph") -> Iterator[Line]:
    """Yield a question with the exact commands that answer it."""
    first, *rest = wording.question_text(question).splitlines() or [""]
    yield Line(text=f"? {question.node_id}: {first}", tone=Tone.QUESTION)
    for line in rest:
        yield Line(text=f"    {line}".rstrip(), tone=Tone.QUESTION)
    if question.HasField("tool"):
        yield Line(text=f"  about {question.tool.tool_name}({question.tool.args})")
    if question.HasField("deadline_time"):
        default = (
            f"then: {wording.answer_text(question.default_answer)}"
            if question.HasField("default_answer")
            else "then the node fails"
        )
        yield Line(text=f"  open until {wording.time_text(question.deadline_time)}, {default}")
    if question.reason.WhichOneof("kind") == "signal":
        yield Line(text=f"  {command} {_signal_words(question)}")
    for each in answer_options(question):
        yield Line(text=f"  {command} answer {question.interrupt_id} {each}")


def _signal_words(question: Interrupt) -> str:
    signal = question.reason.signal
    words = ["runs", "signal", question.run_id, signal.name]
    return shlex.join(
        [*words, "--correlation", signal.correlation] if signal.correlation else words
    )


def answer_options(question: Interrupt) -> Sequence[str]:
    """Return the options of `stepgraph answer` that fit a question, as one would type them."""
    match question.reason.WhichOneof("kind"):
        case "signal":
            return ()
        case "external":
            return ("--reply TEXT",)
        case _ if question.takes_reply:
            return (_reply_option(question.answer_schema), "--failed CODE")
        case _:
            pass
    go_on = ["--with NAME=VALUE"] if question.answer_schema else ["--proceed"]
    choices = [f"--choose {each.id}{_meaning(each.id, each.label)}" for each in question.options]
    return (*(choices or go_on), "--revise 'what should change'", "--abort 'why'")


def _reply_option(schema: str) -> str:
    """Return how a value is given: as text where a text would do."""
    wanted = json.loads(schema) if schema else {}
    is_text = not wanted or (isinstance(wanted, dict) and wanted.get("type") == "string")
    return "--reply TEXT" if is_text else "--reply-json JSON"


def who(task_id: str) -> str:
    """Return whose task it is: "think" of `2/think/t0/e0`, "plan/s3" of spawned work."""
    parts = task_id.split("/")
    if len(parts) == 1:
        return task_id
    spawned = [each for each in parts[2:] if each.startswith("s") and each[1:].isdecimal()]
    return "/".join([parts[1], *spawned])


def _assignee(assignment: TaskAssignment) -> str:
    again = f" (attempt {assignment.attempt})" if assignment.attempt > 1 else ""
    return f"{assignment.executor_id}{again}"


def _followed(edges: Iterable[EdgeOutcome]) -> str:
    names = [each.edge_id for each in edges if each.verdict == EdgeVerdict.EDGE_VERDICT_FOLLOWED]
    return f", follows {wording.names_text(names)}" if names else ""


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _counted(supersteps: int) -> str:
    return "1 superstep" if supersteps == 1 else f"{supersteps} supersteps"


def _meaning(option_id: str, label: str) -> str:
    return f"   # {label}" if label and label != option_id else ""


def _causes(failure: Failure) -> Iterator[Line]:
    for cause in failure.causes:
        yield Line(text=f"  because of {failure_text(cause)}", tone=Tone.BAD)
