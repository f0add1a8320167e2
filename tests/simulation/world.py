"""One course of the simulated world: a server with all that talks to it, seeded, in virtual time.

Rules: everything that is decided by chance is decided by dice that are made of the seed and of what they are for. A course has three
parts: things go wrong; then nothing does any more, and every run must end by itself; then everything must be at rest.
"""

from __future__ import annotations

import asyncio
import logging
import random
import tempfile
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import ParseDict

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import graph_pb2, llm_pb2
from stepgraph_server.core.graph import compile_graph
from stepgraph_server.telemetry import names
from tests.simulation import checks, child_graphs
from tests.simulation.answers import (
    AGENT,
    CONDITION,
    EFFECT,
    GOTO,
    MODEL,
    PROGRAMS,
    TOOLS,
    plain_input,
)
from tests.simulation.chance import Faults
from tests.simulation.disk import DiskFaults, MemoryDisk
from tests.simulation.executor import Executor
from tests.simulation.graphs import DEFAULTS, MAX_NODES, graphs, races
from tests.simulation.ledger import Ledger
from tests.simulation.loop import SimulatedLoop, Stuck
from tests.simulation.network import Network
from tests.simulation.people import Callers
from tests.simulation.server import Server
from tests.simulation.sqlite_disk import SqliteDisk
from tests.simulation.watchers import AllWatcher, RunWatcher
from tests.support.engine_time import LoopClock

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from stepgraph.v1 import task_pb2

TICK_S = 0.5
#: Afterwards every run ends within this time: the longest sleeps and limits of `graphs`, a clock that was set back, and the graces.
HEALING_S = 7_200.0
#: What was slow, frozen or given up reports within this time.
REST_S = 120.0
#: One seed in so many uses SQLite.
SQLITE_SHARE = 5


@dataclass(slots=True)
class Course:
    """What came of a course."""

    seed: int
    troubles: list[str] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    #: What each run left.
    left: dict[str, checks.Left] = field(default_factory=dict)


class _Log(logging.Handler):
    """What the server logs: a part of the trace, and some of it must never be."""

    _NEVER = (names.RUN_QUARANTINED, names.JOURNAL_FAULT)

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else getattr(record, "cause", "")
        text = f"log: {record.getMessage()} {getattr(record, 'run_id', '')} {cause!r}"
        if getattr(record, "action", "") in self._NEVER:
            if record.exc_info:
                self._world.note("".join(traceback.format_exception(*record.exc_info)))
            self._world.trouble(text)
        else:
            self._world.note(text)


class Broken(Exception):
    """Something is wrong, and going on would only hide it."""


class World:
    """Everything there is in one course."""

    def __init__(self, seed: int, loop: SimulatedLoop, only: frozenset[str] | None) -> None:
        self.seed = seed
        self.loop = loop
        self.course = Course(seed)
        self.clock = LoopClock()
        self.faults = Faults(seed, only, self.note)
        self._checker = checks.Checker(self)
        self.ledger = Ledger(self.trouble, self.note, self._checker.check_soon)
        self.network = Network(loop, self.faults, self.dice("network"))
        self._disk = DiskFaults(loop, self.faults, self.ledger)
        self._folder = tempfile.TemporaryDirectory(
            prefix="simulate-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None
        )
        self._store: Any = None
        self.server: Server | None = None
        self._servers = 0
        self._dice = self.dice("world")
        self._group: asyncio.TaskGroup | None = None
        self.callers = Callers(self)
        self._fleet: dict[str, Executor] = {}
        self._processes = 0
        self._watchers: list[RunWatcher] = []
        self._watched: set[str] = set()
        #: What each task asks, and its idempotency key: both are the same for every attempt.
        self._asked: dict[str, tuple[bytes, str]] = {}
        self._all = AllWatcher(self)
        self._forks = 0
        self._plan = self._make_plan()
        self._broken: asyncio.Event = asyncio.Event()
        loop.trouble = self.trouble
        log = logging.getLogger("stepgraph_server")
        log.handlers, log.propagate = [_Log(self)], False

    def dice(self, purpose: str) -> random.Random:
        """Return dice of their own for a purpose."""
        return random.Random(f"{self.seed}/{purpose}")

    def _make_plan(self) -> dict[str, tuple[graph_pb2.StateGraph, float]]:
        dice = self.dice("graphs")
        made = graphs(dice)
        definitions = [next(made) for _ in range(dice.randint(1, 3))]
        children = [ParseDict(child, graph_pb2.StateGraph()) for child in child_graphs.ALL]
        compiled = [compile_graph(each, DEFAULTS) for each in (*definitions, *children)]
        self._compiled = {graph.digest: graph for graph in compiled}
        self._racing = {graph.digest for graph in compiled if races(graph.definition)}
        return {
            f"r{number}": (dice.choice(definitions), dice.uniform(0.0, 8.0))
            for number in range(dice.randint(2, 5))
        }

    # Notes

    def note(self, text: str) -> None:
        """Write a line into the trace."""
        self.course.trace.append(f"{self.loop.time():10.4f}  {text}")

    def count(self, what: str) -> None:
        """Count something."""
        self.course.counts[what] += 1

    def trouble(self, text: str) -> None:
        """Note that something is as it must never be."""
        self.note(f"WRONG {text}")
        self.course.troubles.append(text)
        self._broken.set()

    # Servers

    def make_store(self) -> Any:
        """Return the disk, as the next server finds it."""
        if self.seed % SQLITE_SHARE == 0:
            if self._store is not None:
                self._store.drop()
            self._store = SqliteDisk(Path(self._folder.name) / "data.db", self._disk)
        elif self._store is None:
            self._store = MemoryDisk(self._disk)
        return self._store

    def _start_server(self) -> None:
        if self._store is not None:
            self._store.drop()
            for run_id, events in self._store.read_back().items():
                self.ledger.check_read_back(run_id, events)
        self._servers += 1
        self.note(f"server {self._servers} starts")
        self.server = Server(self, self._servers)

    def server_is_gone(self, server: Server) -> None:
        """A server was killed, or has left; another one comes soon."""
        if server is not self.server:
            return
        self.note(f"{server.process.name} is gone")
        self.count("servers")
        self.server = None
        server.buried()
        if server.process.alive:
            server.process.on_death = lambda: None
            server.process.kill()
        delay_s = self._dice.choice((0.1, 0.5, 2.0, 10.0))
        self.loop.later(delay_s, self._start_server)

    # Executors

    def _hire(self, executor_id: str) -> None:
        before = self._fleet.get(executor_id)
        if before is not None and not before.is_done:
            return
        self._processes += 1
        can = _capabilities()
        room = self.dice(f"room of {executor_id}").randint(1, 4)
        self._fleet[executor_id] = Executor(self, executor_id, self._processes, can, room)

    def check_task(self, task: task_pb2.Task) -> None:
        """Check that a task asks for the same thing, under the same key, at every attempt."""
        asked = (plain_input(task), task.idempotency_key)
        before = self._asked.setdefault(task.task_id, asked)
        if before != asked:
            self.trouble(f"{task.task_id}#{task.attempt} asks for something else than before")

    # The course

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on that belongs to no process."""
        assert self._group is not None
        # Whoever asks for it may die, and it goes on all the same.
        self.loop.root.copy().run(self._group.create_task, work)

    def watch(self, run_id: str) -> None:
        """Have a run watched."""
        self._watched.add(run_id)
        summary = self._dice.random() < 0.3
        watcher = RunWatcher(self, run_id, summary=summary)
        self._watchers.append(watcher)
        self.spawn(watcher.watch())

    async def play(self) -> Course:
        """Play the course."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self.spawn(self._interrupt())
                self._begin()
                await self._go_wrong()
                await self._heal()
                await self._come_to_rest()
                self._broken.set()
        except* Broken:
            pass
        except* Exception as errors:  # noqa: BLE001  # whatever it is, it is what this is to find
            self.trouble(f"the world ended with {errors.exceptions!r}")
        return self.finished()

    def finished(self) -> Course:
        """Return what came of the course so far."""
        self._folder.cleanup()
        self.course.happened = self.faults.happened
        self.course.counts["commits"] = self.ledger.commits
        self.course.counts["frames"] = self.network.frames
        return self.course

    async def _interrupt(self) -> None:
        await self._broken.wait()
        raise Broken

    def _begin(self) -> None:
        self._start_server()
        for number in range(self.dice("fleet").randint(2, 3)):
            self._hire(f"e{number}")
        self.spawn(self._all.watch())
        for run_id, (definition, after_s) in self._plan.items():
            self.spawn(self.callers.start(run_id, definition, after_s))
            self.watch(run_id)

    async def _go_wrong(self) -> None:
        ticks = self.dice("length").randint(20, 240)
        for _ in range(ticks):
            await asyncio.sleep(TICK_S)
            self._tick()
            if self._have_ended():
                break

    def _have_ended(self) -> bool:
        books = self.ledger.books
        return len(books) >= len(self._plan) and all(book.is_final for book in books.values())

    def _tick(self) -> None:
        for executor_id, executor in list(self._fleet.items()):
            if executor.is_done and self._dice.random() < 0.15:
                self._hire(executor_id)
            self._trouble_executor(executor)
        for run_id in sorted(self.ledger.books.keys() - self._watched):
            self.watch(run_id)
        self._trouble_server()
        self._trouble_time()
        self._trouble_runs()

    def _trouble_server(self) -> None:
        strikes, server = self.faults.strikes, self.server
        if server is None:
            return
        if strikes("crash.any") is not None:
            server.process.kill()
        elif strikes("server.stop") is not None:
            server.leave()

    def _trouble_time(self) -> None:
        strikes = self.faults.strikes
        if (dice := strikes("clock.forward")) is not None:
            self.clock.ahead_us += round(dice.choice((0.5, 5.0, 20.0, 400.0)) * 1e6)
        if (dice := strikes("clock.back")) is not None:
            self.clock.ahead_us -= round(dice.choice((0.5, 5.0, 60.0, 400.0)) * 1e6)
        if (dice := strikes("loop.asleep")) is not None:
            # The whole machine was suspended: everything that was due is late.
            self.loop.virtual_s += dice.choice((3.0, 25.0, 90.0))

    def _trouble_executor(self, executor: Executor) -> None:
        strikes = self.faults.strikes
        if executor.is_done:
            return
        if (dice := strikes("exec.die")) is not None:
            executor.die(dice)
        elif strikes("exec.bye") is not None:
            executor.leave()
        elif strikes("exec.twin") is not None:
            # Another process with its id, while this one lives.
            del self._fleet[executor.executor_id]
            self._hire(executor.executor_id)
        elif (dice := strikes("exec.resize")) is not None:
            executor.resize(dice.choice((0, 1, 5)))
        elif (dice := strikes("exec.stop")) is not None:
            executor.sleep(dice.choice((2.0, 12.0, 40.0)))
        elif (dice := strikes("exec.garbage")) is not None:
            executor.talk_nonsense(dice)
        elif (dice := strikes("exec.stray")) is not None:
            executor.claim(dice)

    def _trouble_runs(self) -> None:
        strikes, books = self.faults.strikes, self.ledger.books
        if not books:
            return
        run_ids = sorted(books)
        if (dice := strikes("person.pause")) is not None:
            self.spawn(self.callers.pause(dice.choice(run_ids), dice))
        if (dice := strikes("person.cancel")) is not None:
            self.spawn(self.callers.cancel(dice.choice(run_ids)))
        if (dice := strikes("person.signal")) is not None:
            self.spawn(self.callers.signal_early(dice.choice(run_ids), dice))
        if (dice := strikes("person.look")) is not None:
            self.spawn(self.callers.look(dice.choice(run_ids), dice))
        if (dice := strikes("person.fork")) is not None and len(run_ids) <= MAX_NODES:
            self._forks += 1
            self.spawn(self.callers.fork(dice.choice(run_ids), self._forks, dice))

    async def _heal(self) -> None:
        self.note("nothing goes wrong any more")
        self.faults.over = True
        for executor in list(self._fleet.values()):
            executor.thaw()
        until = self.loop.time() + HEALING_S
        asked = self.loop.time() + 60
        while not (self._have_ended() and self._are_told()):
            for executor_id, executor in list(self._fleet.items()):
                self._hire(executor_id)
                executor.restore()
            await asyncio.sleep(1)
            if self.loop.time() > asked:
                asked = self.loop.time() + 600
                await self._explain_all()
            if self.loop.time() > until:
                await self._explain_all()
                self.trouble(f"after {HEALING_S:.0f} s not all is over: {self._unfinished()}")
                return

    def _are_told(self) -> bool:
        return self._all.has_all() and all(watcher.is_done for watcher in self._watchers)

    def _unfinished(self) -> str:
        open_runs = [name for name, book in self.ledger.books.items() if not book.is_final]
        missing = [name for name in self._plan if name not in self.ledger.books]
        untold = [watcher.name for watcher in self._watchers if not watcher.is_done]
        return f"runs {open_runs}, not started {missing}, still waiting: {untold}"

    async def _explain_all(self) -> None:
        for run_id, book in list(self.ledger.books.items()):
            if not book.is_final:
                waits = await self.callers.explain(run_id)
                self.note(f"{run_id} waits: {'; '.join(wait.description for wait in waits)}")

    async def _come_to_rest(self) -> None:
        await asyncio.sleep(REST_S)
        server = self.server
        while server is None or not server.is_up:
            await asyncio.sleep(1)
            server = self.server
        self._checker.check_rest(server)
        for run_id, book in self.ledger.books.items():
            graph = self._compiled[book.events[0].run_started.graph.digest]
            excuse = "it was cancelled" if run_id in self.callers.cancelled else ""
            excuse = excuse or ("it races" if graph.digest in self._racing else "")
            self.course.left[run_id] = checks.result_of(run_id, book, graph, excuse)
        await self._leave(server)

    async def _leave(self, server: Server) -> None:
        server.leave()
        for _ in range(60):
            await asyncio.sleep(1)
            if server.has_left:
                break
        else:
            self.trouble("the server does not end within a minute")
        self._store.drop()
        for run_id, events in self._store.read_back().items():
            if events != self.ledger.book(run_id).events:
                self.trouble(f"{run_id}: what is stored at the end is not what was durable")


def _capabilities() -> list[pb.Capability]:
    schema = '{"type": "object", "properties": {"q": {"type": "string"}}}'
    tools = [
        llm_pb2.ToolDefinition(name=name, description=f"Does {name}.", input_schema=schema)
        for name in TOOLS
    ]
    programs = [*PROGRAMS, *(f"{GOTO}n{index}" for index in range(MAX_NODES))]
    return [
        pb.Capability(llm=pb.Capability.Llm(models=[MODEL])),
        *(pb.Capability(tool=pb.Capability.Tool(definition=tool)) for tool in tools),
        pb.Capability(agent=pb.Capability.Agent(kind=AGENT)),
        pb.Capability(effect=pb.Capability.Effect(kind=EFFECT)),
        pb.Capability(condition=pb.Capability.Condition(name=CONDITION)),
        *(pb.Capability(step=pb.Capability.Step(program=name)) for name in programs),
    ]


def play(seed: int, only: frozenset[str] | None = None) -> Course:
    """Play one course to its end, and return what came of it.

    The loop and all that lived on it are left as they are: what was killed must not run again, not even to be closed. So call it in
    a process of its own.
    """
    random.seed(seed)
    loop = SimulatedLoop()
    asyncio.set_event_loop(loop)
    world: list[World] = []

    async def begin() -> Course:
        world.append(World(seed, loop, only))
        return await world[0].play()

    try:
        return loop.run_until_complete(begin())
    except (Stuck, AssertionError) as error:
        world[0].trouble(f"the course does not end: {error!r}")
        return world[0].finished()


__all__ = ["Course", "World", "play"]
