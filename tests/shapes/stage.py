"""A stage on which the shapes in examples/shapes are played: a workbench, whose executor does as a script says.

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
import pathlib
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from stepgraph.v1.event_pb2 import EdgeVerdict
from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Failed, TaskContext, load_graph
from stepgraph_testing import Path

if TYPE_CHECKING:
    from stepgraph.v1.conversation_pb2 import Message
    from stepgraph.v1.event_pb2 import NodeCompleted
    from stepgraph.v1.graph_pb2 import StateGraph
    from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptAnswer
    from stepgraph.v1.llm_pb2 import LlmRequest
    from stepgraph.v1.run_pb2 import Run
    from stepgraph_testing import BenchRun, Workbench

PATIENCE_S = 20.0
SHAPES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "shapes"

#: A line, a list of lines, or a function of what was asked.
Lines: TypeAlias = Any
Script: TypeAlias = Mapping[str, Lines]


def shape(name: str) -> StateGraph:
    """Read one of the shapes."""
    return load_graph(SHAPES / f"{name}.yaml").graph


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

    async def line(self, who: str, asked: object, *, is_model: bool = False) -> Any:
        """Return what is said next, which may take a while; raise it if it is a failure."""
        self.asked[who].append(asked)
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
        row: What is listed of it.
        asked: What each node, or tool, was asked.
    """

    run: BenchRun
    row: Run
    asked: Mapping[str, list[Any]]

    @property
    def run_id(self) -> str:
        return self.run.run_id

    @property
    def path(self) -> Path:
        """The supersteps, each the nodes that ran in it, in node-id order with a space between."""
        steps = [event.superstep_started for event in self.run.history.of("superstep_started")]
        return Path(" ".join(step.nodes) for step in steps)

    @property
    def status(self) -> str:
        return status_name(self.row)

    @property
    def end(self) -> str:
        """The terminal node; "" if it did not end at one."""
        return self.row.result.terminal_node

    @property
    def failure(self) -> str:
        """The code of its failure; "" if it did not fail."""
        return self.row.failure.code

    @property
    def variables(self) -> Mapping[str, Any]:
        return self.run.variables

    @property
    def skipped(self) -> set[str]:
        return {event.node_skipped.node_id for event in self.run.history.of("node_skipped")}

    @property
    def counts(self) -> dict[str, int]:
        """How often each node, or tool, was asked."""
        return {who: len(asked) for who, asked in self.asked.items() if asked}

    @property
    def conversation(self) -> list[str]:
        """The messages, as `role: text`."""
        return [said(message) for message in self.run.messages]

    def followed(self, edge: str) -> int:
        """Return how often an edge was followed."""
        ended = [(*e.node_completed.edges, *e.node_failed.edges) for e in self.run.history]
        outcomes = [outcome for edges in ended for outcome in edges]
        followed = [o.edge_id for o in outcomes if o.verdict == EdgeVerdict.EDGE_VERDICT_FOLLOWED]
        return followed.count(edge)


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

    def __init__(self, bench: Workbench, run: BenchRun, prompter: Prompter) -> None:
        self.run = run
        self.client = bench.client
        self.prompter = prompter
        self.question = run.question
        self.signal = run.signal

    async def answer(self, answer: InterruptAnswer, node_id: str = "") -> Interrupt:
        """Answer the next question; return it."""
        question = await self.run.question(node_id)
        await self.run.answer(answer, node_id=node_id)
        return question

    async def called(self, who: str, count: int = 1) -> None:
        """Return once somebody was asked so often."""
        await self.run.reached(lambda _: len(self.prompter.asked[who]) >= count, f"to ask {who}")

    async def completed(self, node_id: str) -> NodeCompleted:
        """Return how a node ended, as whoever watches the run sees it, at once."""
        async with asyncio.timeout(PATIENCE_S), aclosing(self.run.handle.events()) as events:
            async for event in events:
                if event.WhichOneof("kind") == "node_completed":
                    node: NodeCompleted = event.node_completed
                    if node.node_id == node_id:
                        return node
        raise AssertionError(self.run)

    async def status(self) -> str:
        """Return its status, as it is now."""
        return status_name(await self.client.get_run(self.run.run_id))

    async def over(self) -> Played:
        """Return the run once it is over, with nothing of the script left. Waits take no time."""
        await self.run.finished()
        assert not self.prompter.left(), f"lines that nobody asked for: {self.prompter.left()}"
        return Played(
            run=self.run,
            row=await self.client.get_run(self.run.run_id),
            asked=self.prompter.asked,
        )


class Stage:
    """Where shapes are played, one after the other."""

    def __init__(self, bench: Workbench) -> None:
        self.bench = bench
        self.client = bench.client
        self._declared: set[str] = set()
        self._prompter = Prompter({})

    async def play(self, name: str, script: Script, **start: Any) -> Played:
        """Play a shape to its end; for what `start` may say, see `begin`."""
        return await (await self.begin(name, script, **start)).over()

    async def begin(
        self,
        name: str,
        script: Script,
        *,
        tools: tuple[str, ...] = (),
        agents: tuple[str, ...] = (),
        programs: Mapping[str, Callable[..., object]] | None = None,
        graph: StateGraph | None = None,
        beside: tuple[str, ...] = (),
        **start: Any,
    ) -> Live:
        """Begin to play a shape. Whoever is on the stage has the lines of this script from now on.

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
        self._prompter = Prompter(script)
        graph = graph or shape(name)
        for other in beside:
            await self.client.register_graph(shape(other))
        self._offer([graph, *map(shape, beside)], tools, agents, programs or {})
        run = await self.bench.start(graph, **start)
        return Live(self.bench, run, self._prompter)

    def _offer(
        self,
        graphs: list[StateGraph],
        tools: tuple[str, ...],
        agents: tuple[str, ...],
        programs: Mapping[str, Callable[..., object]],
    ) -> None:
        actions = [node.action for graph in graphs for node in graph.nodes]
        called = {action.tool_call.tool_name for action in actions}
        kinds = {action.delegate.agent_kind for action in actions}
        self._declare("llm", {"*"}, self._offer_model)
        self._declare("tool", called | set(tools), self._offer_tool)
        self._declare("agent", kinds | set(agents), self._offer_agent)
        self._declare("step", set(programs), lambda name: self.bench.step(name)(programs[name]))

    def _declare(self, kind: str, names: set[str], declare: Callable[[str], object]) -> None:
        for name in sorted(names):
            # Templates are filled in by runs only.
            if name and "{" not in name and f"{kind} {name}" not in self._declared:
                self._declared.add(f"{kind} {name}")
                declare(name)

    def _offer_model(self, name: str) -> None:
        @self.bench.executor.model(name)
        async def answer(request: LlmRequest, ctx: TaskContext) -> object:
            return await self._prompter.line(ctx.node_id, request, is_model=True)

    def _offer_tool(self, name: str) -> None:
        @self.bench.executor.tool(name=name, description=name, schema={"type": "object"})
        async def answer(args: dict[str, object], ctx: TaskContext) -> object:
            return await self._line(ctx.node_id, name, args)

    def _offer_agent(self, kind: str) -> None:
        @self.bench.executor.agent(kind)
        async def answer(task: str, ctx: TaskContext) -> object:
            return await self._line(ctx.node_id, kind, task)

    async def _line(self, node_id: str, name: str, asked: object) -> object:
        who = node_id if node_id in self._prompter.script else name
        return await self._prompter.line(who, asked)
