"""A stage on which the shapes in examples/shapes are played: a server in this process, and one executor that does as a script says.

A script names who speaks and what they say, in turn: nodes by their id, or tools and kinds of agents by their name.

    run = await stage.play("plan_execute", {
        "planner": {"plan": ["look", "tell"]},      # says the same whenever it is asked
        "agent": ["looked", "told"],                # says these, once each
        "replan": [{"plan": ["tell"]}, {"response": "done"}],
    }, input="tidy up")
    assert run.path == ["planner", "agent", "replan", "agent", "replan", "done"]

Rules: what a model says as a dict is its reply as JSON, and what anybody says as an exception is raised. Whoever is asked once more than
the script has lines fails with SCRIPT_ENDED, and a script with lines left over fails the test: no story is told by halves.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from stepgraph.v1.conversation_pb2 import ContentBlock, Message, TextBlock, ToolCallBlock
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Client, Failed, TaskContext, load_graph
from stepgraph_server.core.instants import Instant
from stepgraph_server.engine.clock import SystemClock
from tests.support.e2e_house import PATIENCE_S, House, history, is_durable

if TYPE_CHECKING:
    from stepgraph.v1.event_pb2 import RunEvent
    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptAnswer
    from stepgraph.v1.llm_pb2 import LlmRequest
    from stepgraph.v1.run_pb2 import Run
    from stepgraph_client import Executor, RunHandle, RunState
    from stepgraph_server.engine.timers import Timers

SHAPES = Path(__file__).resolve().parents[2] / "examples" / "shapes"

#: A line, a list of lines, or a function of what was asked.
Lines: TypeAlias = Any
Script: TypeAlias = Mapping[str, Lines]


def shape(name: str) -> StateGraph:
    """Read one of the shapes."""
    return load_graph(SHAPES / f"{name}.yaml").graph


def calls(*wanted: tuple[str, dict[str, object]], text: str = "") -> Message:
    """Return a reply that asks for tools: `calls(("search", {"q": "x"}))`."""
    blocks = [ContentBlock(text=TextBlock(text=text))] if text else []
    for name, args in wanted:
        blocks.append(ContentBlock(tool_call=ToolCallBlock(name=name, args=json.dumps(args))))
    return Message(content=blocks)


def fails(code: str, *, retryable: bool = False) -> Failed:
    """Return a line that is a failure."""
    category = "technical" if retryable else "business"
    return Failed(code, "as the script has it", category=category)


@dataclass(slots=True)
class Prompter:
    """Who says what, and what they were asked."""

    script: Script
    asked: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    spoken: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def line(self, who: str, asked: object, *, is_model: bool = False) -> Any:
        """Return what is said next, which may take a while; raise it if it is a failure."""
        self.asked[who].append(asked)
        self.changed.set()
        count = self.spoken[who]
        self.spoken[who] += 1
        line = self.script.get(who, [])
        if isinstance(line, list):
            if count >= len(line):
                message = f"{who} was asked once more than it has lines: {count + 1}"
                raise Failed("SCRIPT_ENDED", message, retryable=False)
            line = line[count]
        if callable(line):
            line = line(asked)
        if inspect.isawaitable(line):
            line = await line
        if isinstance(line, Exception):
            raise line
        return json.dumps(line) if is_model and isinstance(line, dict) else line

    def left(self) -> dict[str, int]:
        """Return how many lines nobody asked for."""
        lists = {who: len(lines) for who, lines in self.script.items() if isinstance(lines, list)}
        return {who: n - self.spoken[who] for who, n in lists.items() if n > self.spoken[who]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A run that is over.

    Attributes:
        path: The supersteps, each the nodes that ran in it, in node-id order with a space between.
        end: The terminal node; "" if it did not end at one.
        asked: What each node, or tool, was asked.
    """

    handle: RunHandle
    events: list[RunEvent]
    state: RunState
    asked: Mapping[str, list[Any]]

    @property
    def path(self) -> list[str]:
        steps = [e.superstep_started for e in self.events if e.HasField("superstep_started")]
        return [" ".join(step.nodes) for step in steps]

    @property
    def status(self) -> str:
        return status_name(self.handle.run)

    @property
    def end(self) -> str:
        return self.handle.run.result.terminal_node

    @property
    def failure(self) -> str:
        return self.handle.run.failure.code

    @property
    def variables(self) -> dict[str, Any]:
        return self.state.variables

    @property
    def skipped(self) -> set[str]:
        return {e.node_skipped.node_id for e in self.events if e.HasField("node_skipped")}

    @property
    def counts(self) -> dict[str, int]:
        """How often each node, or tool, was asked."""
        return {who: len(asked) for who, asked in self.asked.items() if asked}

    @property
    def conversation(self) -> list[str]:
        """The messages, as `role: text`."""
        return [said(message) for message in self.state.state.conversation.messages]

    def followed(self, edge: str) -> int:
        """Return how often an edge was followed."""
        outcomes = [o for e in self.events for o in (*e.node_completed.edges, *e.node_failed.edges)]
        return [o.edge_id for o in outcomes if o.verdict == 1].count(edge)


def status_name(run: Run) -> str:
    """Return the status of a row, such as "COMPLETED"."""
    return RunStatus.Name(run.status).removeprefix("RUN_STATUS_")


ROLES = {1: "system", 2: "user", 3: "assistant", 4: "tool"}


def said(message: Message) -> str:
    """Return a message as one line."""
    words = []
    for block in message.content:
        match block.WhichOneof("kind"):
            case "text":
                words.append(block.text.text)
            case "tool_call":
                words.append(f"{block.tool_call.name}()")
            case "tool_result":
                result = block.tool_result
                words.append(("error " if result.is_error else "") + _text(result.content))
    return f"{ROLES[message.role]}: {' '.join(words)}"


def _text(blocks: Any) -> str:
    return "".join(block.text.text for block in blocks)


class Live:
    """A run that is under way: to be answered, signalled, cancelled."""

    def __init__(self, client: Client, handle: RunHandle, prompter: Prompter) -> None:
        self.client = client
        self.handle = handle
        self.prompter = prompter
        self._seen = 0

    async def until(self, kind: str) -> RunEvent:
        """Return the next event of a kind that was not returned before."""
        async with asyncio.timeout(PATIENCE_S), aclosing(self.handle.events(self._seen)) as events:
            async for event in events:
                if is_durable(event):
                    self._seen = event.sequence
                    if event.WhichOneof("kind") == kind:
                        return event
        message = f"the run ended without another {kind}: {self.handle.run}"
        raise AssertionError(message)

    async def question(self) -> Interrupt:
        """Return the next question, once it is asked."""
        return (await self.until("interrupt_opened")).interrupt_opened.question

    async def answer(self, answer: InterruptAnswer) -> Interrupt:
        """Answer the next question; return it."""
        question = await self.question()
        await self.client.answer(question.interrupt_id, answer, answered_by="test")
        return question

    async def called(self, who: str, count: int = 1) -> None:
        """Return once somebody was asked so often."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.prompter.asked[who]) < count:
                self.prompter.changed.clear()
                await self.prompter.changed.wait()

    async def signal(self, name: str, payload: object = None, *, correlation: str = "") -> None:
        """Send a signal."""
        await self.client.signal(self.handle.run_id, name, payload, correlation=correlation)

    async def status(self) -> str:
        """Return its status, as it is now."""
        return status_name(await self.client.get_run(self.handle.run_id))

    async def over(self) -> Played:
        """Return the run once it is over, with nothing of the script left."""
        async with asyncio.timeout(PATIENCE_S):
            await self.handle.wait()
        assert not self.prompter.left(), f"lines that nobody asked for: {self.prompter.left()}"
        return Played(
            handle=self.handle,
            events=await history(self.client, self.handle.run_id),
            state=await self.handle.state(),
            asked=self.prompter.asked,
        )


class MovableClock(SystemClock):
    """The machine's clock, that a test can set ahead."""

    ahead_us = 0

    def now(self) -> Instant:
        return Instant(super().now() + self.ahead_us)


class Stage:
    """Where shapes are played."""

    def __init__(self, house: House, client: Client, clock: MovableClock, timers: Timers) -> None:
        self.client = client
        self._house = house
        self._clock = clock
        self._timers = timers
        self._count = 0
        self._executor: Executor | None = None

    def let_pass(self, seconds: float) -> None:
        """Let time pass."""
        self._clock.ahead_us += round(seconds * 1_000_000)
        self._timers.clock_moved()

    async def play(self, name: str, script: Script, **start: Any) -> Played:
        """Play a shape to its end; for what `start` may say, see `begin`."""
        return await (await self.begin(name, script, **start)).over()

    async def begin(
        self,
        name: str,
        script: Script,
        *,
        tools: Mapping[str, Any] | tuple[str, ...] = (),
        agents: tuple[str, ...] = (),
        programs: Mapping[str, Callable[..., object]] | None = None,
        graph: StateGraph | None = None,
        beside: tuple[str, ...] = (),
        **start: Any,
    ) -> Live:
        """Begin to play a shape.

        Args:
            name: The shape.
            script: Who says what.
            tools: What tools there are, beside those that nodes call by name.
            agents: What kinds of agents there are, beside those that nodes name.
            programs: Step programs by name.
            graph: The shape, changed.
            beside: Other shapes that it runs.
            start: What a run may be started with.
        """
        prompter = Prompter(script)
        graph = graph or shape(name)
        for other in beside:
            await self.client.register_graph(shape(other))
        all_ = [graph, *map(shape, beside)]
        if self._executor is not None:
            # Who was on the stage before has other lines.
            await self._house.leave(self._executor)
        self._count += 1
        self._executor = executor = self._house.executor(f"actors{self._count}")
        _offer(executor, prompter, all_, tools, agents)
        for program, function in (programs or {}).items():
            executor.step(program)(function)
        await self._house.work(executor)
        handle = await self.client.start_run(graph, **start)
        return Live(self.client, handle, prompter)


def _offer(
    executor: Executor,
    prompter: Prompter,
    graphs: list[StateGraph],
    tools: Any,
    agents: tuple[str, ...],
) -> None:
    actions = [node.action for graph in graphs for node in graph.nodes]

    @executor.model("*")
    async def model(request: LlmRequest, ctx: TaskContext) -> object:
        return await prompter.line(ctx.node_id, request, is_model=True)

    def declare_agent(kind: str) -> None:
        @executor.agent(kind)
        async def agent(task: str, ctx: TaskContext) -> object:
            who = ctx.node_id if ctx.node_id in prompter.script else kind
            return await prompter.line(who, task)

    kinds = {action.delegate.agent_kind for action in actions if action.HasField("delegate")}
    for kind in sorted({kind for kind in kinds if kind and "{" not in kind} | set(agents)):
        declare_agent(kind)

    def declare_tool(name: str) -> None:
        @executor.tool(name=name, schema={"type": "object"})
        async def tool(args: dict[str, object], ctx: TaskContext) -> object:
            """Do as the script says."""
            who = ctx.node_id if ctx.node_id in prompter.script else name
            return await prompter.line(who, args)

    called = {action.tool_call.tool_name for action in actions if action.HasField("tool_call")}
    for name in sorted({name for name in called if "{" not in name} | set(tools)):
        declare_tool(name)
