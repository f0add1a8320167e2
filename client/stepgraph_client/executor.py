"""An executor: functions of yours that do the work of runs.

    executor = Executor("127.0.0.1:7233")

    @executor.tool()
    async def search(query: str, limit: int = 10) -> list[str]:
        '''Search the archive.'''
        ...

    executor.run_forever()

Rules: an executor lives as long as its process, and streams come and go under it. It connects again after every end that it
did not wish for. What it works on goes on meanwhile, and what it has finished is kept until the server has it.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar, overload

from stepgraph_client import identity
from stepgraph_client._functions import Functions
from stepgraph_client._notices import last_words, shown_without_logging
from stepgraph_client._running import Plan, Running
from stepgraph_client._session_events import Identity
from stepgraph_client.connection import DEFAULT_SERVER
from stepgraph_client.errors import Refused
from stepgraph_client.tools import tool_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import grpc

    from stepgraph.v1 import executor_service_pb2 as pb
    from stepgraph_client.json_text import JsonLike

F = TypeVar("F", bound="Callable[..., object]")


class Executor:
    """Functions of yours that do the work of runs. Declare them first, then `run` or `run_forever`."""

    def __init__(  # noqa: PLR0913  # all but the first are by name, and none is needed
        self,
        server: str = DEFAULT_SERVER,
        *,
        executor_id: str = "",
        namespace: str = "",
        labels: Mapping[str, str] | None = None,
        max_in_flight: int = 100,
        threads: int = 32,
        max_held_programs: int = 10_000,
        drain_timeout_s: float = 30.0,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        """Make an executor; nothing is connected yet.

        Args:
            server: Where the server is, host:port.
            executor_id: An id that no other executor of the namespace has. Empty: one is made of the host's name and chance.
                The same id again takes over from the process that had it before.
            namespace: The namespace. Empty means "default".
            labels: What selectors of runs, nodes and effects can ask for.
            max_in_flight: How many tasks it takes at once.
            threads: How many functions that are not async run at once; further ones wait here.
            max_held_programs: How many step programs are kept in memory between two of their turns; others are replayed.
            drain_timeout_s: How long what runs may take to end when the executor is stopped. What still runs then is given
                to another executor by the server.
            credentials: For a server that speaks TLS.
        """
        self.server: Final = server
        self.executor_id: Final = executor_id or identity.new_executor_id()
        self.namespace: Final = namespace
        self._identity: Final = Identity(
            executor_id=self.executor_id,
            instance_token=identity.new_instance_token(),
            namespace=namespace,
            labels=dict(labels or {}),
            client_name=identity.client_version(),
        )
        self._max_in_flight = max_in_flight
        self._threads: Final = threads
        self._drain_timeout_s: Final = drain_timeout_s
        self._credentials: Final = credentials
        self._functions: Final = Functions(max_held_programs=max_held_programs)
        self._running: Running | None = None
        self._started: Final = asyncio.Event()

    # ---- declaring -------------------------------------------------------------------------------

    def model(self, *models: str) -> Callable[[F], F]:
        """Answer calls of these models, exact names or prefixes that end in `*`.

        The function takes an LlmRequest, and a TaskContext if it wants one; it returns an LlmResponse, a Message of the
        assistant's, or text. Ids of tool calls may be left empty: the server makes its own.

        Raises:
            TypeError: No model is named.
        """
        _need_names("model", models, "claude-*")

        def declare(function: F) -> F:
            self._declare(self._functions.add_models(models, function))
            return function

        return declare

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        /,
        *,
        name: str = "",
        description: str = "",
        schema: JsonLike | None = None,
        requires_approval: bool = False,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: F | None = None,
        /,
        *,
        name: str = "",
        description: str = "",
        schema: JsonLike | None = None,
        requires_approval: bool = False,
    ) -> F | Callable[[F], F]:
        """Run a tool, as `@executor.tool` or `@executor.tool(…)`: its name is the function's, its description the docstring, its schema that of the parameters.

        Arguments are checked against the types; what does not fit is told to the model. A parameter of type TaskContext, or
        named `ctx`, takes the context. The function returns text, anything that JSON has, a pydantic model, bytes, content
        blocks or a ToolResult, or raises ToolError for trouble that the model should know about. With a `schema` of its
        own it takes one argument, the object as it came.

        Raises:
            TypeError: What was given is no function, or can't be a tool.
        """
        if function is not None and not callable(function):
            message = (
                f"a tool is a function, not {function!r}; write @executor.tool(name={function!r})"
            )
            raise TypeError(message)

        def declare(function: F) -> F:
            tool = tool_of(function, name=name, description=description, schema=schema)
            self._declare(
                self._functions.add_tool(tool, function, requires_approval=requires_approval)
            )
            return function

        return declare if function is None else declare(function)

    def agent(self, kind: str) -> Callable[[F], F]:
        """Be an agent of this kind.

        The function takes a task, as text, and a TaskContext if it wants one; it returns what a tool may return as a value,
        or a TaskResult.Agent with its usage.
        """
        _need_names("agent", (kind,), "researcher")

        def declare(function: F) -> F:
            self._declare(self._functions.add_agent(kind, function))
            return function

        return declare

    def condition(self, name: str) -> Callable[[F], F]:
        """Decide a condition: the function takes a ConditionContext if it wants one, and returns True or False."""
        _need_names("condition", (name,), "is_safe")

        def declare(function: F) -> F:
            self._declare(self._functions.add_condition(name, function))
            return function

        return declare

    def effect(self, kind: str) -> Callable[[F], F]:
        """Do work of a custom kind: the function takes a Value, and a TaskContext if it wants one; it returns a value."""
        _need_names("effect", (kind,), "mail")

        def declare(function: F) -> F:
            self._declare(self._functions.add_effect(kind, function))
            return function

        return declare

    def step(self, program: str) -> Callable[[F], F]:
        """Be a step program: it is told what has ended, and says what it wants next. It takes a StepContext, and is one of these.

        An `async def` that awaits what it wants (`await ctx.tool("search", query="…")`) and returns its value; a generator
        that yields the same; or a function that is called at every turn and returns a transition. The first two go on
        where they stopped. If this process does not hold them any more, they are replayed: begun again, and told all turns
        so far. So what they ask for may depend on nothing but what they are told.

        Raises:
            TypeError: It does not take one argument, or is an async generator.
        """
        _need_names("step", (program,), "research")

        def declare(function: F) -> F:
            self._declare(self._functions.add_step(program, function))
            return function

        return declare

    def _declare(self, capability: pb.Capability) -> None:
        if self._running is not None:
            self._running.add(capability)

    # ---- running ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until `stop` is called, or the server will not have this executor.

        Raises:
            Refused: Connecting again would not help: the hello is wrong, another process has taken over the executor id, or
                the caller is not known or may not do this.
            RuntimeError: It runs already.
        """
        if self._running is not None:
            message = "the executor runs already"
            raise RuntimeError(message)
        running = self._running = Running(self._plan())
        self._started.set()
        try:
            failure = await running.until_stopped()
        finally:
            self._running = None
            self._started.clear()
        if failure is not None:
            raise failure

    def run_forever(self) -> None:
        """Run until SIGTERM or SIGINT, then stop well; a second signal ends it at once. For programs without asyncio.

        How the connection is, is written to stderr unless the program has configured logging.

        Raises:
            SystemExit: Where `run` raises Refused, which is its cause: the process ends with one line that says why and what
                to do. A program that wants to go on uses `run`.
        """
        try:
            with shown_without_logging(), suppress(asyncio.CancelledError):
                asyncio.run(self._run_until_signal())
        except Refused as refused:
            raise SystemExit(last_words(refused, self.server, self.executor_id)) from refused

    async def _run_until_signal(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None, "coroutines run in tasks"

        def on_signal() -> None:
            if self._running is None or self._running.is_stopping:
                task.cancel()
            self.stop()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, on_signal)
        await self.run()

    def stop(self) -> None:
        """Stop well: take nothing more, finish what runs, report it, say bye; then `run` returns. Idempotent.

        Call it on the event loop. What still runs after `drain_timeout_s` is cancelled.
        """
        if self._running is not None:
            self._running.stop()

    async def connected(self) -> None:
        """Return once the server has welcomed this executor; it may be called before `run` is."""
        await self._started.wait()
        if self._running is not None:
            await self._running.welcomed.wait()

    def resize(self, max_in_flight: int) -> None:
        """Take so many tasks at once from now on; 0 means no more, and what runs goes on. Call it on the event loop."""
        self._max_in_flight = max_in_flight
        if self._running is not None:
            self._running.resize(max_in_flight)

    def _plan(self) -> Plan:
        return Plan(
            server=self.server,
            identity=self._identity,
            functions=self._functions,
            max_in_flight=self._max_in_flight,
            threads=self._threads,
            drain_timeout_s=self._drain_timeout_s,
            credentials=self._credentials,
        )


def _need_names(decorator: str, names: tuple[object, ...], example: str) -> None:
    """Refuse a decorator that has no name to go by: without parentheses it is given the function itself."""
    if names and all(isinstance(each, str) and each for each in names):
        return
    given = "nothing" if not names else ", ".join(map(repr, names))
    message = f"executor.{decorator} needs names, and has {given}; write @executor.{decorator}({example!r})"
    raise TypeError(message)
