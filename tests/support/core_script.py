"""The commands of scenario files, played against the core. `tests/scenarios/README.md` lists them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from ruamel.yaml import YAML

from stepgraph.v1 import event_pb2, executor_service_pb2, run_pb2, task_pb2, transition_pb2
from stepgraph_client.files import parse_graph
from stepgraph_server.core import inputs
from stepgraph_server.core.conversation import message_text
from stepgraph_server.core.errors import GraphInvalid, Refused
from stepgraph_server.core.failures import failure
from stepgraph_server.core.graph import GraphDefaults, check_graph, compile_graph
from stepgraph_server.core.instants import after, seconds_text, to_timestamp
from stepgraph_server.core.invariants import outstanding
from stepgraph_server.core.preparing import prepare
from stepgraph_server.core.run import next_due
from stepgraph_server.core.state import RULES_VERSION, TaskStatus
from stepgraph_server.core.tasks import note_accepted, note_progress
from tests.support import core_reports as reports
from tests.support.core_run import RUN_ID, PlayedRun
from tests.support.core_trace import (
    ack_line,
    command_lines,
    event_line,
    failure_text,
    status_name,
    value_text,
)
from tests.support.core_world import ENDLESS, PlayedExecutor, PlayedWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepgraph.v1 import conversation_pb2
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.instants import Instant, Span
    from stepgraph_server.core.state import Carried

Words = list[str]
Lines = list[str]


class Script:
    """Plays commands one after the other. Without `executor` commands there is one, e1, that can do everything."""

    def __init__(self) -> None:
        self.world = PlayedWorld()
        self.world.join(PlayedExecutor(id="e1", instance="e1.1"))
        self.graph: CompiledGraph | None = None
        self._run: PlayedRun | None = None
        self._status = ""
        self._declared = False

    @property
    def run(self) -> PlayedRun:
        """The run that was started."""
        assert self._run is not None, "start a run first"
        return self._run

    def play(self, line: str, body: Lines) -> Lines:
        """Play one command, with the lines below it; return the trace."""
        name, *words = shlex.split(line)
        command: Callable[[Words, Lines], Lines] = getattr(self, f"do_{name.replace('-', '_')}")
        return command(words, body)

    # What there is

    def do_graph(self, _: Words, body: Lines) -> Lines:
        """Read a graph in YAML, check and compile it."""
        definition = parse_graph("\n".join(body)).graph
        defaults = GraphDefaults()
        found = check_graph(definition, defaults)
        lines = [f"warning {each.code} {each.path}" for each in found.warnings]
        try:
            self.graph = compile_graph(definition, defaults)
        except GraphInvalid as error:
            return lines + [
                f"problem {each.code} {each.path}: {each.message}" for each in error.problems
            ]
        return [*lines, "ok"]

    def do_limits(self, words: Words, _: Lines) -> Lines:
        """Change limits of the server: `max_losses=2`, `cancel_grace=1s`."""
        changes: dict[str, Any] = {
            name: reports.span(text) if text[-1] in "smh" else int(text)
            for name, text in reports.split(words)[1]
        }
        self.world.limits = replace(self.world.limits, **changes)
        return ["ok"]

    def do_executor(self, words: Words, _: Lines) -> Lines:
        """Let an executor connect: its id, `room=`, `can=llm,tool:search`, `labels=a:b`, `instance=`."""
        if not self._declared:
            self.world.executors.clear()
            self._declared = True
        (name, *_), named = reports.split(words)
        given = dict(named)
        executor = PlayedExecutor(
            id=name,
            instance=given.get("instance", f"{name}.1"),
            room=int(given.get("room", str(ENDLESS))),
            abilities=frozenset(_list(given.get("can", ""))),
            labels=frozenset(_pairs(given.get("labels", ""))),
        )
        self.world.join(executor)
        return ["ok"]

    def do_tool(self, words: Words, body: Lines) -> Lines:
        """Declare a tool, with its schema below; `approval` after its name: a person must approve each call."""
        name, *rest = words
        self.world.offer(name, "\n".join(body), requires_approval="approval" in rest)
        return ["ok"]

    # What happens

    def do_start(self, words: Words, body: Lines) -> Lines:
        """Start the run. Lines below are variables, `name = value`."""
        assert self.graph is not None, "give a graph first"
        self._run = PlayedRun(self.graph, self.world)
        given = dict(reports.split(words)[1])
        started = event_pb2.RunStarted(
            run_id=RUN_ID,
            rules_version=RULES_VERSION,
            max_iterations=int(given.get("max_iterations", str(self.graph.max_iterations))),
            token_limit=int(given.get("token_limit", "0")),
            selector=dict(_pairs(given.get("selector", ""))),
        )
        state = started.initial_state
        state.active_paradigm = given.get("paradigm", "")
        state.should_terminate = given.get("terminate") == "true"
        if "state" in given:
            json_format.Parse(given["state"], state)
        for line in body:
            name, _, text = line.partition(" = ")
            started.input.variables[name.strip()].CopyFrom(reports.value(text.strip()))
        if "value" in given:
            started.input.value.CopyFrom(reports.value(given["value"]))
        if "message" in given:
            message = started.input.messages.add(role="ROLE_USER")
            message.content.add().text.text = given["message"]
        if "time_limit" in given:
            at = after(self.run.now, reports.span(given["time_limit"]))
            started.time_limit_time.CopyFrom(to_timestamp(at))
        if "parent" in given:
            started.parent.run_id, started.parent.task_id = "r0", given["parent"]
            started.root_run_id, started.depth = "r0", int(given.get("depth", "1"))
        if "delay" in given:
            at = after(self.run.now, reports.span(given["delay"]))
            started.delay_until_time.CopyFrom(to_timestamp(at))
        return self._happen(inputs.Start(started=started))

    def do_result(self, words: Words, body: Lines) -> Lines:
        """Report results, one a line, all in one frame: `<task>#<attempt> …`."""
        return self._report([("result", words), *(("result", shlex.split(line)) for line in body)])

    def do_reply(self, words: Words, body: Lines) -> Lines:
        """Report the reply of a step program: `<poll>#<attempt>`, and below it a StepReply in YAML."""
        ref = _ref(words[0])
        tree = YAML(typ="safe", pure=True).load("\n".join(body))
        reply = json_format.ParseDict(tree or {}, transition_pb2.StepReply())
        outcome = executor_service_pb2.AttemptOutcome(
            task_id=f"{RUN_ID}/{ref.task_id}",
            attempt=ref.attempt,
            succeeded=task_pb2.TaskResult(step=reply),
        )
        instance = self.run.instances.get((ref.task_id, ref.attempt), "")
        return self._happen(inputs.Outcomes(instance=instance, outcomes=((ref.task_id, outcome),)))

    def do_fail(self, words: Words, body: Lines) -> Lines:
        """Report that an attempt failed: `<task>#<attempt> CODE message`."""
        return self._report([("fail", words), *(("fail", shlex.split(line)) for line in body)])

    def do_cancelled(self, words: Words, _: Lines) -> Lines:
        """Report that an attempt was cancelled."""
        return self._report([("cancelled", words)])

    def do_frame(self, _: Words, body: Lines) -> Lines:
        """Report several outcomes in one frame; each line is `result …`, `fail …` or `cancelled …`."""
        parts = [shlex.split(line) for line in body]
        return self._report([(name, words) for name, *words in parts])

    def do_lost(self, words: Words, _: Lines) -> Lines:
        """Lose attempts: `<task>#<attempt>…`, `reason=withdrawn`."""
        plain, named = reports.split(words)
        reason = dict(named).get("reason", "disconnected").upper()
        return self._happen(
            inputs.AttemptsLost(
                attempts=tuple(_ref(word) for word in plain),
                reason=event_pb2.TaskLossReason.Value(f"TASK_LOSS_REASON_{reason}"),
            )
        )

    def do_accepted(self, words: Words, _: Lines) -> Lines:
        """Note that attempts were accepted."""
        for word in words:
            note_accepted(self.run.state, _ref(word))
        return ["ok"]

    def do_progress(self, words: Words, _: Lines) -> Lines:
        """Note progress of an attempt."""
        live = note_progress(self.run.state, _ref(words[0]), self.run.now)
        return ["ok" if live else "stale"]

    def do_room(self, words: Words, _: Lines) -> Lines:
        """Give executors room (`e1=2`), then try what waits, or the tasks that are named."""
        plain = [word for word in words if "=" not in word]
        for name, count in (word.split("=") for word in words if "=" in word):
            self.world.executors[name].room += int(count)
        task_ids, self.run.waiting = tuple(plain or self.run.waiting), []
        return self._happen(inputs.RoomFound(task_ids=task_ids))

    def do_time(self, words: Words, _: Lines) -> Lines:
        """Let time pass: `+5s`, or `next` for when something is due."""
        run = self.run
        if words[0] == "next":
            at = next_due(run.state)
            assert at is not None, "nothing is due"
            run.now = max(run.now, at)
        else:
            run.now = after(run.now, reports.span(words[0]))
        return self._happen(inputs.TimePassed())

    def do_answer(self, words: Words, _: Lines) -> Lines:
        """Answer the last question of a node, of an activation, or about a task: `<node> abort not today`, `by=anna`."""
        node, kind, *rest = words
        by = next((word[3:] for word in rest if word.startswith("by=")), "anna")
        rest = [word for word in rest if not word.startswith("by=")]
        ids = [
            name
            for name, question in self.run.state.questions.items()
            if node
            in (
                question.interrupt.node_id,
                question.interrupt.activation_id,
                question.interrupt.task_id,
            )
        ]
        answer = reports.answer(kind, rest)
        return self._happen(
            inputs.Answer(interrupt_id=ids[-1] if ids else node, answer=answer, answered_by=by)
        )

    def do_cancel(self, words: Words, _: Lines) -> Lines:
        """Cancel the run."""
        return self._happen(inputs.Cancel(reason=" ".join(words)))

    def do_signal(self, words: Words, _: Lines) -> Lines:
        """Send a signal: its name, `for=` what it carries to be matched by, and its payload."""
        (name, *rest), named = reports.split(words)
        payload = reports.value(" ".join(rest)) if rest else None
        signal = inputs.Signal(name=name, correlation=dict(named).get("for", ""), payload=payload)
        return self._happen(signal)

    def do_pause(self, words: Words, _: Lines) -> Lines:
        """Pause the run; `by-parent`, because its parent is paused."""
        by_parent = words[:1] == ["by-parent"]
        return self._happen(inputs.Pause(reason=" ".join(words), by_parent=by_parent))

    def do_unpause(self, words: Words, _: Lines) -> Lines:
        """Let a paused run go on; `by-parent`, because its parent goes on."""
        return self._happen(inputs.Unpause(by_parent=words[:1] == ["by-parent"]))

    def do_go_on(self, _: Words, __: Lines) -> Lines:
        """Go on after a yield."""
        return self._happen(inputs.GoOn())

    def do_child(self, words: Words, body: Lines) -> Lines:
        """Hear of the child run of a task: `<task> running`, `suspended`, `paused`, `completed <output>`, `failed CODE message` or
        `cancelled <reason>`, `tokens=`; below it its variables, `name = value`.
        """
        return self._happen(reports.child_seen(words, body))

    def do_no_child(self, words: Words, _: Lines) -> Lines:
        """Hear that there will be no child run for a task: `<task> CODE message`."""
        task_id, code, *message = words
        why = failure(code, " ".join(message))
        return self._happen(inputs.ChildRefused(task_id=task_id, failure=why))

    def do_resolve(self, words: Words, _: Lines) -> Lines:
        """Hear what references to graphs stand for: `name=digest`."""
        pairs = [word.split("=", 1) for word in words]
        graphs = {name: run_pb2.GraphVersion(digest=digest) for name, digest in pairs}
        return self._happen(inputs.Resolve(graphs=graphs))

    def do_look(self, _: Words, __: Lines) -> Lines:
        """Look at the run; nothing happens."""
        return self._happen(inputs.Look())

    def do_fork(self, words: Words, body: Lines) -> Lines:
        """Go on with a fork: `fork 7 iterations=5 tokens=100 time_limit=5s graph`; below it what is changed.

        `answer <activation> <kind>…`, `result <task> <result>`, `paradigm <name>`, `unset <name>` or `name = value`. With the
        word `graph` it goes on by the graph that was read last.
        """
        (at, *plain), named = reports.split(words)
        given, state = dict(named), self.run.state
        fork = _fork(body, self.run)
        forked = fork.forked
        forked.run_id, forked.origin.run_id, forked.origin.sequence = RUN_ID, "r0", int(at)
        forked.max_iterations = int(given.get("iterations", str(state.max_iterations)))
        forked.token_limit = int(given.get("tokens", "0"))
        if "time_limit" in given:
            limit = after(self.run.now, reports.span(given["time_limit"]))
            forked.time_limit_time.CopyFrom(to_timestamp(limit))
        if plain:
            assert self.graph is not None
            forked.graph.digest = self.graph.digest
            fork = replace(fork, graph=self.graph)
        try:
            self._run = self.run.fork(int(at), fork)
        except Refused as refusal:
            return [f"refused {refusal.reason}: {refusal.message}"]
        self._status = status_name(self.run.state.status)
        return [*map(event_line, self.run.events[int(at) :]), f"= {self._status}"]

    def do_fold(self, _: Words, __: Lines) -> Lines:
        """Forget the state and fold it from the journal, as a restart does; then go on."""
        self.run.restart()
        return self._happen(inputs.GoOn())

    # What is there

    def do_state(self, _: Words, __: Lines) -> Lines:
        """Show the state."""
        state = self.run.state
        lines = [f"{status_name(state.status)} iterations={state.iterations}"]
        if state.budget_remaining is not None:
            lines[0] += f" tokens={state.tokens.used} left={state.budget_remaining}"
        lines += [f"{name} = {value_text(held)}" for name, held in sorted(state.variables.items())]
        lines += [_message_line(message) for message in state.conversation.messages()]
        lines.append(_carried_line(state.carried))
        lines += [
            f"{join} waits, has {' '.join(sources)}" for join, sources in state.arrivals.items()
        ]
        return lines

    def do_outstanding(self, _: Words, __: Lines) -> Lines:
        """Show what the run waits for."""
        waits = outstanding(self.run.state)
        lines = [f"assigned {task_id}#{attempt}" for task_id, attempt in waits.assigned]
        for name in ("queued", "held", "asking", "backing_off", "sleeping", "questions", "ready"):
            lines += [
                f"{name} {each}" if name != "questions" else "a question"
                for each in getattr(waits, name)
            ]
        lines += [f"children {each}" for each in waits.children]
        if waits.due is not None:
            lines.append(f"due in {seconds_text(_since(self.run.now, waits.due))}")
        return lines or ["nothing"]

    def do_input(self, words: Words, _: Lines) -> Lines:
        """Show the input of a task."""
        run = self.run
        task = run.state.tasks[words[0]]
        if task.status is TaskStatus.CHILD:
            given = run_pb2.RunInput.FromString(prepare(run.state, task).build(run.state))
            return [json_format.MessageToJson(given, indent=None, sort_keys=True)]
        made = task_pb2.TaskInput.FromString(prepare(run.state, task).build(run.state))
        if made.HasField("llm"):
            lines = [f"model {made.llm.model}"]
            if made.llm.system_prompt:
                lines.append(f"system {made.llm.system_prompt}")
            lines += [f"tool {tool.name}" for tool in made.llm.tools]
            return lines + [_message_line(message) for message in made.llm.messages]
        text = json_format.MessageToJson(
            made, preserving_proto_field_name=True, indent=None, sort_keys=True
        )
        return [text]

    def do_failure(self, _: Words, __: Lines) -> Lines:
        """Show the run's failure with its details."""
        why = self.run.state.failure
        if why is None:
            return ["none"]
        details = [f"  {name}: {text}" for name, text in sorted(why.details.items())]
        return [f"{failure_text(why)} (source {why.source or 'the server'})", *details]

    # How

    def _report(self, parts: Iterable[tuple[str, Words]]) -> Lines:
        outcomes: list[tuple[str, executor_service_pb2.AttemptOutcome]] = []
        instance = ""
        for kind, (name, *words) in parts:
            ref = _ref(name)
            given = dict(reports.split(words)[1])
            instance = given.get("instance") or self.run.instances.get(
                (ref.task_id, ref.attempt), instance
            )
            said = [word for word in words if not word.startswith("instance=")]
            outcomes.append((ref.task_id, self._outcome(ref, kind, said)))
        return self._happen(inputs.Outcomes(instance=instance, outcomes=tuple(outcomes)))

    def _outcome(
        self, ref: inputs.AttemptRef, kind: str, words: Words
    ) -> executor_service_pb2.AttemptOutcome:
        made = executor_service_pb2.AttemptOutcome(
            task_id=f"{RUN_ID}/{ref.task_id}", attempt=ref.attempt
        )
        if kind == "result":
            made.succeeded.CopyFrom(reports.result(self._kind_of(ref.task_id), words))
        elif kind == "fail":
            made.failed.CopyFrom(reports.failed(words))
        elif kind == "cancelled":
            made.cancelled.CopyFrom(reports.cancelled(words))
        return made

    def _kind_of(self, task_id: str) -> str:
        for event in self.run.events:
            if event.task_scheduled.task_id == task_id:
                return event.task_scheduled.requirement.WhichOneof("kind") or ""
        return "tool"

    def _happen(self, happened: inputs.Input) -> Lines:
        try:
            decision = self.run.happen(happened)
        except Refused as refusal:
            return [f"refused {refusal.reason}: {refusal.message}"]
        lines = [event_line(event) for event in decision.events]
        lines += command_lines(decision.commands)
        lines += [ack_line(ack) for ack in decision.acks]
        status = status_name(self.run.state.status)
        if status != self._status:
            lines.append(f"= {status}")
            self._status = status
        return lines or ["nothing"]


def _fork(body: Lines, run: PlayedRun) -> inputs.Fork:
    answers, results = [], []
    forked = event_pb2.RunForked()
    for line in body:
        first, *rest = shlex.split(line)
        match first:
            case "answer":
                answers.append((rest[0], reports.answer(rest[1], rest[2:])))
            case "result":
                task = run.state.tasks.get(rest[0])
                kind = task.key[0] if task is not None else "tool"
                results.append((rest[0], reports.result(kind, rest[1:])))
            case "paradigm":
                forked.patch.paradigm = rest[0]
            case "unset":
                forked.patch.delete_variables.append(rest[0])
            case _:
                forked.patch.variables[first].CopyFrom(reports.value(line.partition(" = ")[2]))
    return inputs.Fork(
        forked=forked, answers=tuple(answers), results=tuple(results), answered_by="anna"
    )


def _ref(word: str) -> inputs.AttemptRef:
    task_id, _, attempt = word.partition("#")
    return inputs.AttemptRef(task_id=task_id, attempt=int(attempt or "1"))


def _list(text: str) -> list[str]:
    return [each for each in text.split(",") if each]


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (each.partition(":") for each in _list(text))]


def _since(now: Instant, at: Instant) -> Span:
    return type(now)(at - now)  # type: ignore[return-value]  # both are integers of microseconds


def _message_line(message: conversation_pb2.Message) -> str:
    role = {1: "system", 2: "user", 3: "assistant", 4: "tool"}[message.role]
    parts = [f'"{message_text(message)}"'] if message_text(message) else []
    for block in message.content:
        if block.HasField("tool_call"):
            call = block.tool_call
            provider = f" ({call.provider_id})" if call.provider_id else ""
            parts.append(f"call {call.id}{provider} {call.name} {call.args}")
        elif block.HasField("tool_result"):
            result = block.tool_result
            text = "".join(each.text.text for each in result.content)
            provider = f" ({result.provider_id})" if result.provider_id else ""
            error = " error" if result.is_error else ""
            parts.append(f'result of {result.call_id}{provider}{error} "{text}"')
    return f"{role}: {', '.join(parts)}"


def _carried_line(carried: Carried) -> str:
    parts = [f"last_result={value_text(carried.last_result)}"]
    if carried.last_error is not None:
        parts.append(f"last_error={failure_text(carried.last_error)}")
    if carried.decision is not None:
        parts.append(f"decision={carried.decision.WhichOneof('kind')}")
    if carried.paradigm:
        parts.append(f"paradigm={carried.paradigm}")
    return "carried " + " ".join(parts)


__all__ = ["Script"]
