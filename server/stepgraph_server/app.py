"""The composition root: builds every concrete object, and closes it in the right order.

Rules: nothing else constructs a store, an engine or a server, and nothing here decides anything. Entering is from the store
outwards, so that whoever is let in finds everything there; leaving is the other way round, so that what calls have begun can
still be made durable.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import random
import secrets
import uuid
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from stepgraph.v1.executor_service_pb2 import AckVerdict
from stepgraph_server.api.executor_stream import ExecutorStreams
from stepgraph_server.api.listening import AddressInUse, parse_address, refuse_unless_allowed
from stepgraph_server.api.server import ApiServer, Backends, refuse_address
from stepgraph_server.core.inputs import RunLimits
from stepgraph_server.core.instants import SECOND, Instant
from stepgraph_server.core.policies import GraphDefaults, Limits, RetryPolicy
from stepgraph_server.engine.children import Children
from stepgraph_server.engine.clock import SystemClock
from stepgraph_server.engine.dispatcher import Dispatcher
from stepgraph_server.engine.engine import Engine
from stepgraph_server.engine.graph_cache import GraphCache
from stepgraph_server.engine.recovery import Recovery
from stepgraph_server.engine.run_history import RunHistory
from stepgraph_server.engine.runner import Runner
from stepgraph_server.engine.watch import Watcher, WatchHub
from stepgraph_server.executors.catalogue import Catalogue
from stepgraph_server.executors.registry import Registry
from stepgraph_server.executors.session_events import Terms
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.memory import MemoryStore
from stepgraph_server.storage.sqlite.store import SqliteStore
from stepgraph_server.telemetry import names, otel_settings
from stepgraph_server.telemetry.lag import watch_lag
from stepgraph_server.telemetry.measurements import Measurements
from stepgraph_server.telemetry.telemetry import ScrapeAddress, Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Mapping
    from types import TracebackType

    from stepgraph_server.api.gate import Gate
    from stepgraph_server.config import Settings
    from stepgraph_server.core.instants import Span
    from stepgraph_server.engine.clock import Clock
    from stepgraph_server.executors.seats import Seat
    from stepgraph_server.storage.store import Store

_log = logging.getLogger(__name__)

FORGET_PERIOD_S: Final = 60.0
"""How often old request ids are looked for."""

FORGET_AT_ONCE: Final = 1_000
"""So many are deleted in one write, so that nobody waits long behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A server that answers."""

    settings: Settings
    address: str
    api: ApiServer
    engine: Engine
    runner: Runner
    dispatcher: Dispatcher
    store: Store
    telemetry: Telemetry


def version() -> str:
    """Return the version of this server."""
    return importlib.metadata.version("stepgraph")


@asynccontextmanager
async def running_server(
    settings: Settings,
    *,
    store: Store | None = None,
    clock: Clock | None = None,
    variables: Mapping[str, str] | None = None,
) -> AsyncIterator[RunningServer]:
    """Run a server for as long as the context lasts.

    Args:
        settings: How. With `listen="127.0.0.1:0"` a free port is taken; see `RunningServer.address`.
        store: In place of the one that the settings name; for tests. It is started and closed here.
        clock: In place of the machine's.
        variables: What OpenTelemetry's variables say; without them nothing is recorded.

    Raises:
        StoreUnusable: The data can't be opened; a subclass says why.
        AddressRefused: The address is not allowed or in use.
        SettingError: Metrics are to be scraped, and what that needs is not installed.
    """
    # Before any data is touched: a second server that is started by mistake should say so, and nothing else.
    refuse_address(settings)
    parts = Parts(settings, store or _make_store(settings), clock or SystemClock(), variables or {})
    # Outermost: what is written last is recorded too.
    async with _recording(parts.telemetry):
        await parts.store.start(parts.runner.on_appended)
        try:
            async with _answering(settings, parts) as server:
                yield server
        finally:
            parts.runner.close()
            await parts.store.close()


@asynccontextmanager
async def _recording(telemetry: Telemetry) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(telemetry)
        except OSError as error:
            message = (
                f"can't listen for scrapes of metrics: {(error.strerror or str(error)).lower()}. Stop what "
                "uses the address, or choose another one with --metrics-address"
            )
            raise AddressInUse(message) from error
        yield


@asynccontextmanager
async def _answering(settings: Settings, parts: Parts) -> AsyncIterator[RunningServer]:
    """Go on with the runs that there are, and let callers and executors in."""
    async with parts.background as background:
        # Loading runs may take long when there are many. Readiness does not wait for it: their executors must come
        # back before their grace is over, and whatever is asked for is loaded first.
        background.spawn(parts.recovery.take_up(await parts.recovery.recover()))
        background.spawn(parts.recovery.watch_graces())
        background.spawn(watch_lag(histogram=parts.telemetry.sources.loop_lag))
        background.spawn(_forget_requests(parts.store, parts.clock, settings.retention.request_ids))
        async with AsyncExitStack() as stack:
            # Last of all here: what runs still begin when nobody calls any more needs the background as its owner.
            stack.callback(parts.runner.close)
            # Told of no error, since what goes wrong inside should come out as it is and not in a group.
            await parts.sessions.__aenter__()
            stack.push_async_callback(parts.sessions.__aexit__, None, None, None)
            api = await stack.enter_async_context(ApiServer(settings, parts.backends()))
            background.spawn(parts.telemetry.measure(lambda: parts.measured(api.gate)))
            yield RunningServer(
                settings=settings,
                address=api.address,
                api=api,
                engine=parts.engine,
                runner=parts.runner,
                dispatcher=parts.dispatcher,
                store=parts.store,
                telemetry=parts.telemetry,
            )


def _scrape_address(settings: Settings) -> ScrapeAddress | None:
    """Return where metrics may be scraped, if anywhere. Raises AddressRefused."""
    if not settings.metrics_address:
        return None
    address = parse_address(settings.metrics_address)
    refuse_unless_allowed(address, insecure=settings.insecure)
    return ScrapeAddress(host=address.host, port=address.port)


def _make_store(settings: Settings) -> Store:
    if settings.memory:
        return MemoryStore()
    assert settings.data is not None, "the settings were checked"
    return SqliteStore(settings.data)


class Parts:
    """Everything that there is one of, built but not started."""

    def __init__(
        self, settings: Settings, store: Store, clock: Clock, variables: Mapping[str, str]
    ) -> None:
        self.store = store
        self.clock = clock
        self.background = Background()
        self.defaults = graph_defaults(settings)
        graphs = GraphCache(store.graphs, self.defaults)
        self.registry = Registry(settings.session.lost_grace, self._on_room)
        hub = WatchHub(journal=store.journal, runs=store.runs)
        self.telemetry = Telemetry(
            otel_settings.read(variables),
            RunHistory(store.journal),
            version(),
            _scrape_address(settings),
        )
        if isinstance(store, SqliteStore):
            self.telemetry.sources.commits = store.commits
        self.watcher = Watcher(hub, store.runs, settings.watch_keepalive)
        self.dispatcher = Dispatcher(
            registry=self.registry,
            catalogue=Catalogue(self.registry),
            hub=hub,
            clock=clock,
            limits=run_limits(settings),
            # Chance that spreads retries; nobody gains by guessing it.
            jitter=lambda: random.uniform(-1.0, 1.0),  # noqa: S311
            values=store.values,
            interrupts=store.interrupts,
            spawn=self.background.spawn,
        )
        self.runner = Runner(
            store=store,
            graphs=graphs,
            clock=clock,
            acts=self.dispatcher,
            publisher=hub,
            spawn=self.background.spawn,
            observer=self.telemetry.observer,
        )
        self.children = Children(
            store=store,
            graphs=graphs,
            runner=self.runner,
            clock=clock,
            limits=run_limits(settings),
            spawn=self.background.spawn,
        )
        self.dispatcher.attach(self.runner, self.children)
        self.engine = Engine(
            store=store,
            graphs=graphs,
            runner=self.runner,
            registry=self.registry,
            clock=clock,
            make_run_id=lambda: make_run_id(clock.now()),
            max_start_bytes=settings.pages.max_response_bytes,
        )
        self.recovery = Recovery(
            runs=store.runs,
            runner=self.runner,
            dispatcher=self.dispatcher,
            registry=self.registry,
            clock=clock,
        )
        self.sessions = ExecutorStreams(
            registry=self.registry,
            work=self.dispatcher,
            terms=terms(settings),
            now=clock.now,
            new_session_id=lambda: secrets.token_hex(8),
        )

    def _on_room(self, seat: Seat) -> None:
        # The registry and the dispatcher need each other; nobody has room before both are there.
        self.dispatcher.room(seat)

    def measured(self, gate: Gate) -> Measurements:
        """Return what there is now, for metrics."""
        dispatcher, runner = self.dispatcher, self.runner
        ages = [age for queue in dispatcher.waiting.queues() if (age := queue.oldest()) is not None]
        oldest = self.clock.now() - min(ages) if ages else 0
        backlog = self.store.journal.backlog()
        return Measurements(
            queued_tasks=len(dispatcher.waiting),
            oldest_task_s=max(0, oldest) / SECOND,
            attempts=len(dispatcher.holdings),
            runs_in_memory=runner.live_count,
            runs_loading=runner.loading,
            waiting_appends=backlog.appends,
            waiting_bytes=backlog.bytes,
            sessions=gate.count("session"),
            watchers=gate.count("watch"),
            sent_tasks=dispatcher.counts.sent,
            verdicts=tuple(
                (AckVerdict.Name(verdict).removeprefix("ACK_VERDICT_").lower(), count)
                for verdict, count in dispatcher.counts.verdicts.items()
            ),
        )

    def backends(self) -> Backends:
        """Return what the API needs of it."""
        return Backends(
            store=self.store,
            engine=self.engine,
            watcher=self.watcher,
            sessions=self.sessions,
            executors=self.registry,
            clock=self.clock,
            graph_defaults=self.defaults,
        )


class Background:
    """Owns what goes on beside the calls. Leaving it ends all of it; a fault in any of it ends the server."""

    def __init__(self) -> None:
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        # What came from outside goes on as it is: handed to the group, it would come back wrapped in another one.
        await self._group.__aexit__(None, None, None)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Let something go on by itself."""
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _forget_requests(store: Store, clock: Clock, retention: Span) -> None:
    while True:
        try:
            count = await store.requests.forget(Instant(clock.now() - retention), FORGET_AT_ONCE)
        except JournalUnavailable:
            count = 0  # readiness says so; here it can wait
        if count:
            _log.debug(
                "Old request ids were forgotten",
                extra={"action": names.REQUESTS_FORGOTTEN, "count": count},
            )
        await asyncio.sleep(0 if count == FORGET_AT_ONCE else FORGET_PERIOD_S)


def make_run_id(now: Instant) -> str:
    """Return a new run id: a UUID of version 7, so that ids of runs sort by their age, which indexes like."""
    milliseconds = now // 1_000
    chance = secrets.randbits(74)  # at once: each asks the kernel
    high, low = chance >> 62, chance & (1 << 62) - 1
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low))


def graph_defaults(settings: Settings) -> GraphDefaults:
    """Return what a graph gets that says nothing."""
    retry, tasks = settings.retry, settings.tasks
    return GraphDefaults(
        retry=RetryPolicy(
            max_tries=retry.max_tries,
            first_delay=retry.first_delay,
            factor=retry.factor,
            max_delay=retry.max_delay,
            jitter=retry.jitter,
        ),
        limits=Limits(
            queue=tasks.queue,
            accept=tasks.accept,
            run=tasks.run,
            idle=tasks.idle,
            total=tasks.total,
        ),
        max_iterations=settings.limits.max_iterations,
    )


def run_limits(settings: Settings) -> RunLimits:
    """Return the limits that the rules of runs need."""
    return RunLimits(
        max_events=settings.limits.max_run_events,
        max_journal_bytes=settings.limits.max_run_bytes,
        max_inline_value_bytes=settings.limits.max_inline_value_bytes,
        max_fan_out=settings.limits.max_fan_out,
        cancel_grace=settings.session.cancel_grace,
    )


def terms(settings: Settings) -> Terms:
    """Return what executors are held to."""
    session, limits = settings.session, settings.limits
    return Terms(
        ping_interval=session.ping_interval,
        silence_limit=session.silence_limit,
        lost_grace=session.lost_grace,
        cancel_grace=session.cancel_grace,
        max_inline_value_bytes=limits.max_inline_value_bytes,
        max_stored_value_bytes=limits.max_stored_value_bytes,
        max_frame_bytes=session.max_frame_bytes,
        max_labels=limits.max_labels,
        server_version=f"stepgraph/{version()}",
    )
