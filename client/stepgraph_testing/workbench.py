"""A workbench for graphs: a real server in this process, scripted models and tools, and a clock that skips every wait.

    async with Workbench() as bench:
        bench.model("m", replies=[calls(call("search", query="grpc")), "It is a protocol."])

        @bench.tool
        def search(query: str) -> str:
            '''Search.'''
            return "…"

        run = await bench.start("graphs/ask.yaml", input="What is gRPC?")
        assert await run.result() == "It is a protocol."
        assert run.path == ["think", "act", "think", "answer"]

Rules: nothing of the server, the session or the client is replaced but the clock: what works here works with a server of its
own. A wait by the clock (a sleep, a retry, a deadline, `bench.sleep`) takes no time, and time jumps only while nothing else is
under way, so a test that takes no time takes the same way each time.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar, Unpack

from stepgraph_client import Client, Executor
from stepgraph_client.files import load_graph
from stepgraph_server.app import RunningServer, running_server
from stepgraph_server.config import Settings, ShutdownSettings
from stepgraph_server.core.instants import MILLISECOND, Instant, after
from stepgraph_server.core.instants import Span as Micros
from stepgraph_testing.bench_run import BenchRun, Stuck
from stepgraph_testing.clock import BenchClock, micros
from stepgraph_testing.replies import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from stepgraph.v1 import llm_pb2
    from stepgraph_client.durations import Span
    from stepgraph_client.graphs import GraphSource
    from stepgraph_client.requests import RunOptions

F = TypeVar("F", bound="Callable[..., object]")

#: Nothing says that nothing happens; so it is looked for, so often in a row, before the clock jumps.
QUIET_LOOKS: Final = 3
LOOK_S: Final = 0.002
#: So long nothing must happen before a run counts as stuck: something that the test does beside may be on its way.
STUCK_S: Final = 0.25

_SOON: Final = Micros(50 * MILLISECOND)
_SETTINGS: Final = Settings(
    listen="127.0.0.1:0",
    memory=True,
    # Nobody in a test is given time to say good-bye.
    shutdown=ShutdownSettings(drain_grace=_SOON, stop_grace=_SOON),
)


class Workbench:
    """A server with one executor and one client, for tests. Use it as an async context manager."""

    def __init__(
        self,
        *,
        data: Path | None = None,
        settings: Settings | None = None,
        patience_s: float = 30.0,
    ) -> None:
        """Make a workbench; nothing has started yet.

        Args:
            data: A file to keep the runs in; another workbench on the same one goes on with them, as after a restart.
            settings: Another server than one in memory on a free port.
            patience_s: How long work that is really under way may take before a wait for its run fails.
        """
        self.clock: Final = BenchClock()
        settings = settings or _SETTINGS
        self._settings: Final = (
            settings if data is None else replace(settings, memory=False, data=data)
        )
        self._patience_s: Final = patience_s
        self._open: Final = AsyncExitStack()
        self._server: RunningServer | None = None
        self._client: Client | None = None
        self._executor: Executor | None = None
        #: What was called, by its kind and name: "tool search", "llm m".
        self.scripts: Final[dict[str, Script]] = {}

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                running_server(self._settings, clock=self.clock)
            )
            self._server = server
            self._client = await stack.enter_async_context(Client(server.address))
            self._executor = Executor(server.address, executor_id="workbench", drain_timeout_s=0.05)
            group = await stack.enter_async_context(asyncio.TaskGroup())
            group.create_task(self._executor.run())
            stack.callback(self._executor.stop)
            await self._executor.connected()
            self._open.push_async_callback(stack.pop_all().aclose)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._open.aclose()

    @property
    def address(self) -> str:
        """Where the server is, for further clients and executors."""
        return self._running.address

    @property
    def client(self) -> Client:
        """A client of the server."""
        assert self._client is not None, _NOT_OPEN
        return self._client

    @property
    def executor(self) -> Executor:
        """The executor. Most of its decorators are here too: `bench.tool`, `bench.step` and so on."""
        assert self._executor is not None, _NOT_OPEN
        return self._executor

    @property
    def _running(self) -> RunningServer:
        assert self._server is not None, _NOT_OPEN
        return self._server

    # ---- who does the work -----------------------------------------------------------------------

    def tool(self, function: F) -> F:
        """Declare a tool: `@bench.tool`. With options it is `@bench.executor.tool(…)`."""
        return self.executor.tool(function)

    def agent(self, kind: str) -> Callable[[F], F]:
        """Declare an agent, as `executor.agent` does."""
        return self.executor.agent(kind)

    def condition(self, name: str) -> Callable[[F], F]:
        """Declare a condition, as `executor.condition` does."""
        return self.executor.condition(name)

    def effect(self, kind: str) -> Callable[[F], F]:
        """Declare a custom kind of work, as `executor.effect` does."""
        return self.executor.effect(kind)

    def step(self, program: str) -> Callable[[F], F]:
        """Declare a step program, as `executor.step` does."""
        return self.executor.step(program)

    def model(
        self, name: str, replies: Iterable[object] | Callable[[llm_pb2.LlmRequest], object]
    ) -> Script:
        """Answer calls of a model by a script: texts, `calls(…)`, LlmResponses, `Failed(…)`, `later(…)`; or by a function of the request.

        The script that is returned has what it was `asked`.
        """
        script = self.scripts[f"llm {name}"] = Script(f"the model {name}", replies)

        @self.executor.model(name)
        async def answer(request: llm_pb2.LlmRequest) -> object:
            return await script.say(request, self.sleep)

        return script

    def tools(self, name: str, results: Iterable[object] | Callable[[object], object]) -> Script:
        """Answer calls of a tool by a script of results, ToolErrors and `Failed(…)`, or by a function of its arguments.

        It takes any arguments; declare one with `bench.tool` where its schema matters.
        """
        script = self.scripts[f"tool {name}"] = Script(f"the tool {name}", results)

        @self.executor.tool(name=name, description=name, schema={"type": "object"})
        async def answer(arguments: object) -> object:
            return await script.say(arguments, self.sleep)

        return script

    def agents(self, kind: str, results: Iterable[object] | Callable[[object], object]) -> Script:
        """Answer tasks of a kind of agent by a script, or by a function of the task."""
        script = self.scripts[f"agent {kind}"] = Script(f"the agent {kind}", results)

        @self.executor.agent(kind)
        async def answer(task: str) -> object:
            return await script.say(task, self.sleep)

        return script

    async def sleep(self, how_long: Span) -> None:
        """Take time in a tool of a test: by the workbench's clock, so that nobody waits for it."""
        await self.clock.sleep(how_long)

    # ---- runs ------------------------------------------------------------------------------------

    async def start(self, graph: GraphSource | Path, **options: Unpack[RunOptions]) -> BenchRun:
        """Start a run of a graph: a builder, a definition, a reference, or a file of one."""
        source = load_graph(graph).graph if isinstance(graph, Path) else graph
        return BenchRun(self, await self.client.start_run(source, **options))

    async def run(self, run_id: str) -> BenchRun:
        """Take up a run that exists, such as one of a workbench before."""
        run = BenchRun(self, await self.client.run(run_id))
        await run.refresh()
        return run

    async def advance(self, how_long: Span) -> None:
        """Let time pass: everything that is due until then happens, in its order, each after what came before it has settled."""
        end = after(self.clock.now(), micros(how_long))
        while (due := self._next_due()) is not None and due <= end:
            self._jump(due)
            await self._settled()
        self._jump(end)
        await self._settled()

    async def wait(self, run: BenchRun, holds: Callable[[], bool], what: str) -> None:
        """Return once something holds of a run; see `BenchRun`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_s
        while not await _holds(run, holds):
            if not await self._settled(until=end):
                raise Stuck(_stuck(run, what, f"work is under way for {self._patience_s:g} s"))
            if await _holds(run, holds):
                return
            if run.status == "open" and (due := self._next_due_of(run)) is not None:
                self._jump(due)
                end = loop.time() + self._patience_s
            elif run.status != "open" or not await self._stirs():
                raise Stuck(_stuck(run, what, "nothing is under way"))

    # ---- time ------------------------------------------------------------------------------------

    def _next_due_of(self, run: BenchRun) -> Instant | None:
        """Return when something happens by itself that may help a run; None if only somebody else can."""
        history = run.history
        if any(task.unclaimed and task.outcome == "open" for task in history.tasks):
            # At its limit it would fail, which says less than that there is nobody who can do it.
            return None
        questions = history.questions
        sleeps = any(task.due_time is not None and task.outcome == "open" for task in history.tasks)
        if (
            questions
            and not sleeps
            and not any(each.HasField("deadline_time") for each in questions)
        ):
            # Only the run's own time limit is left, by which every forgotten answer would look like a slow run.
            return self.clock.next_due()
        return self._next_due()

    def _next_due(self) -> Instant | None:
        found = [self._running.runner.timers.next_look(), self.clock.next_due()]
        return min((each for each in found if each is not None), default=None)

    def _jump(self, to: Instant) -> None:
        self.clock.jump(to)
        self._running.runner.timers.clock_moved()

    @property
    def _is_quiet(self) -> bool:
        server = self._running
        return (
            server.runner.at_rest
            and not server.store.journal.backlog().appends
            and len(server.dispatcher.holdings) <= self.clock.sleeping
        )

    async def _settled(self, until: float | None = None) -> bool:
        """Return once nothing is under way but what waits for the clock; False if that takes too long."""
        loop = asyncio.get_running_loop()
        quiet = 0
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(LOOK_S)
            quiet = quiet + 1 if self._is_quiet else 0
            if until is not None and loop.time() > until:
                return False
        return True

    async def _stirs(self) -> bool:
        """Return True as soon as something is under way again; False if nothing is for a while."""
        loop = asyncio.get_running_loop()
        end = loop.time() + STUCK_S
        before = self._running.store.journal.head_position()
        while loop.time() < end:
            await asyncio.sleep(LOOK_S)
            if not self._is_quiet or self._running.store.journal.head_position() != before:
                return True
        return False


_NOT_OPEN: Final = "use the workbench inside of `async with Workbench() as bench`"


async def _holds(run: BenchRun, holds: Callable[[], bool]) -> bool:
    await run.refresh()
    return holds()


def _stuck(run: BenchRun, what: str, why: str) -> str:
    lines = run.history.story()
    return f"the run {run.run_id} was {what}, and won't: {why}\n{lines}"
