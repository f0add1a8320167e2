"""Who is connected, with how much room, and where a task may go.

Rules: this knows executors and counts, no runs and no attempts. It is used on the thread of the event loop only. `reserve`
and `release` are called once per task and allocate nothing; everything that is dear is done when an executor comes, goes or
changes.

An executor id has one instance (one process, proven by its token), and an instance at most one live seat (one session):

    join    a new id                    -> a seat
            the same instance           -> a new seat; the old session is superseded, what is assigned stays
            another instance            -> a new seat; the old instance has lost everything
    lost    the stream broke            -> the seat is gone; the instance stays, and its grace runs
    leave   the executor said bye       -> both are gone
    expire  the grace is over           -> the instance is gone
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph.v1 import event_pb2, executor_service_pb2
from stepgraph_server.core.instants import after, to_timestamp
from stepgraph_server.executors.seats import NO_ROOM, LostInstance, Seat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stepgraph_server.core.instants import Instant, Span
    from stepgraph_server.executors.capabilities import Abilities, RequirementKey
    from stepgraph_server.executors.seats import Outlet
    from stepgraph_server.executors.session_events import HelloReceived

Selector: TypeAlias = tuple[tuple[str, str], ...]

#: Of more candidates than this, the least loaded of those that were taken least recently is good enough: looking at all of
#: a thousand would cost more than the task.
MAX_COMPARED: Final = 32
#: Candidate lists that a namespace remembers; then all are made again. Models and selectors come from runs, so their number
#: has no bound of its own.
MAX_REMEMBERED_LISTS: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What came of a hello.

    Attributes:
        seat: The new seat. It has no room until it is opened.
        superseded: The seat of an older session that is to be closed with SESSION_SUPERSEDED, if there was one.
        lost: The instance that lost everything, if the executor came back as another one.
    """

    seat: Seat
    superseded: Seat | None
    lost: LostInstance | None


@dataclass(slots=True, kw_only=True)
class _Instance:
    """One process of an executor."""

    instance: str
    #: Its last seat; None if it is only known from before this server started.
    seat: Seat | None
    #: When its grace is over; None while its stream lives.
    expires: Instant | None
    #: When each of its tools was first seen, by name and digest, as a counter of the registry's.
    tools_since: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class _Namespace:
    """The executors of one namespace, by id, and what follows from them."""

    instances: dict[str, _Instance] = field(default_factory=dict)
    #: Counted up whenever what executors can do changes.
    version: int = 0
    candidates: dict[tuple[RequirementKey, Selector], list[Seat]] = field(default_factory=dict)


class Registry:
    """All executors of all namespaces."""

    def __init__(self, lost_grace: Span, on_room: Callable[[Seat], None]) -> None:
        """Start with nobody.

        Args:
            lost_grace: How long a lost stream's instance is kept.
            on_room: Called when a seat may take work that it could not take before, in the middle of what made room.
        """
        self._lost_grace: Final = lost_grace
        self._on_room: Final = on_room
        self._namespaces: Final[dict[str, _Namespace]] = {}
        # Every grace is equally long, so the order of insertion is the order of expiry.
        self._graces: Final[dict[tuple[str, str], Instant]] = {}
        self._tools_seen = 0

    # ---- coming and going ------------------------------------------------------------------------

    def join(self, hello: HelloReceived, outlet: Outlet, now: Instant) -> Joined:
        """Give an executor that has said hello a seat. Then close what was superseded, and `open` the seat."""
        namespace = self._namespaces.setdefault(hello.namespace, _Namespace())
        before = namespace.instances.get(hello.executor_id)
        seat = Seat(hello, outlet, now)
        instance = _Instance(instance=hello.instance, seat=seat, expires=None)
        lost: LostInstance | None = None
        superseded: Seat | None = None
        if before is not None:
            if before.expires is None:
                superseded = before.seat
                self._shut(before.seat)
            if before.instance == hello.instance:
                instance.tools_since = before.tools_since
            else:
                lost = _lost(
                    hello.namespace,
                    hello.executor_id,
                    before.instance,
                    event_pb2.TASK_LOSS_REASON_FORGOTTEN,
                )
        self._graces.pop((hello.namespace, hello.executor_id), None)
        namespace.instances[hello.executor_id] = instance
        self._note_tools(instance, hello.abilities)
        self._changed(namespace)
        return Joined(seat=seat, superseded=superseded, lost=lost)

    def open(self, seat: Seat, in_flight: int) -> bool:
        """Let a seat take work, with `in_flight` slots taken already; False if it was superseded meanwhile."""
        if not self._is_current(seat):
            return False
        seat.is_open = True
        seat.in_flight = in_flight
        self._changed(self._namespaces[seat.namespace])
        self._weigh(seat)
        return True

    def lost(self, seat: Seat, now: Instant) -> None:
        """A stream has ended without bye: the grace starts. Harmless for a seat that is not current."""
        instance = self._current(seat)
        if instance is not None:
            self._shut(seat)
            self._start_grace(seat.namespace, seat.executor_id, instance, now)
            self._changed(self._namespaces[seat.namespace])

    def leave(self, seat: Seat) -> LostInstance | None:
        """An executor said bye: return its instance, whose attempts are lost; None for a seat that is not current."""
        if self._current(seat) is None:
            return None
        self._shut(seat)
        self._remove(seat.namespace, seat.executor_id)
        return _lost(
            seat.namespace,
            seat.executor_id,
            seat.instance,
            event_pb2.TASK_LOSS_REASON_FORGOTTEN,
        )

    def expect(self, namespace: str, executor_id: str, instance: str, now: Instant) -> bool:
        """Start the grace of an instance that had attempts before this server started. Harmless if it is known.

        False: the executor is here as another instance, so this one will never come.
        """
        space = self._namespaces.setdefault(namespace, _Namespace())
        known = space.instances.get(executor_id)
        if known is not None:
            return known.instance == instance
        expected = _Instance(instance=instance, seat=None, expires=None)
        space.instances[executor_id] = expected
        self._start_grace(namespace, executor_id, expected, now)
        return True

    def expire(self, now: Instant) -> list[LostInstance]:
        """Drop the instances whose grace is over, and return them."""
        over: list[LostInstance] = []
        for (namespace, executor_id), expires in list(self._graces.items()):
            if expires > now:
                break
            instance = self._namespaces[namespace].instances[executor_id].instance
            self._remove(namespace, executor_id)
            reason = event_pb2.TASK_LOSS_REASON_DISCONNECTED
            over.append(_lost(namespace, executor_id, instance, reason))
        return over

    def next_expiry(self) -> Instant | None:
        """Return when `expire` has something to do next, as things are."""
        return next(iter(self._graces.values()), None)

    # ---- changes ---------------------------------------------------------------------------------

    def resize(self, seat: Seat, max_in_flight: int) -> None:
        """Set how many attempts a seat takes at once; what it has goes on."""
        had_none = seat.max_in_flight == 0
        seat.max_in_flight = max_in_flight
        if had_none != (max_in_flight == 0) and self._is_current(seat):
            self._changed(self._namespaces[seat.namespace])  # what is drained offers no tools
        self._weigh(seat)

    def change(self, seat: Seat, abilities: Abilities) -> None:
        """Set what the executor of a seat can do; what it has goes on."""
        seat.abilities = abilities
        instance = self._current(seat)
        if instance is not None:
            self._note_tools(instance, abilities)
            self._changed(self._namespaces[seat.namespace])
            if seat.load < 1:
                self._on_room(seat)

    def drain(self, seat: Seat) -> None:
        """Give a seat nothing more."""
        seat.draining = True
        self._weigh(seat)

    def pause(self, seat: Seat) -> None:
        """Give a seat nothing while its stream is clogged."""
        seat.paused = True
        self._weigh(seat)

    def resume(self, seat: Seat) -> None:
        """Take a pause back."""
        seat.paused = False
        self._weigh(seat)

    # ---- placing tasks ---------------------------------------------------------------------------

    def reserve(
        self, namespace: str, key: RequirementKey, selector: Selector, prefers: str = ""
    ) -> Seat | None:
        """Take a slot of the least loaded seat that meets a requirement, or return None if none has room.

        A seat of the instance `prefers` goes before the others if it has room.
        A slot is given back with `release` at the same seat, once: when its attempt has reported, or was not sent.
        """
        space = self._namespaces.get(namespace)
        if space is None:
            return None
        candidates = space.candidates.get((key, selector))
        if candidates is None:
            candidates = self._find(space, key, selector)
        # The list is kept in the order of last use, so the first of two equally loaded seats has waited longer.
        best = _preferred(candidates, prefers) if prefers else None
        if best is None:
            least = 1.0
            for compared, seat in enumerate(candidates):
                if seat.load < least:
                    best = seat
                    least = seat.load
                    if least == 0.0:
                        break
                if best is not None and compared >= MAX_COMPARED:
                    break
        if best is None:
            return None
        if len(candidates) > 1:
            candidates.remove(best)
            candidates.append(best)
        best.in_flight += 1
        best.load = (
            best.in_flight / best.max_in_flight if best.in_flight < best.max_in_flight else NO_ROOM
        )
        return best

    def release(self, seat: Seat, count: int = 1) -> None:
        """Give slots back. For a seat whose session is over this is harmless: its slots went with it."""
        seat.in_flight = max(0, seat.in_flight - count)
        self._weigh(seat)

    def capable(self, namespace: str, key: RequirementKey, selector: Selector) -> int:
        """Count the seats that could take such a task if they had room: connected, not drained."""
        candidates = self._candidates(namespace, key, selector)
        return sum(1 for seat in candidates if seat.max_in_flight and not seat.draining)

    def room(self, namespace: str, key: RequirementKey, selector: Selector) -> int:
        """Count the slots that are free for such a task."""
        candidates = self._candidates(namespace, key, selector)
        return sum(seat.max_in_flight - seat.in_flight for seat in candidates if seat.load < 1)

    # ---- reading ---------------------------------------------------------------------------------

    def find(self, namespace: str, executor_id: str, instance: str) -> Seat | None:
        """Return the live seat of an instance, if it has one."""
        space = self._namespaces.get(namespace)
        known = space.instances.get(executor_id) if space is not None else None
        if known is None or known.expires is not None or known.instance != instance:
            return None
        return known.seat

    def seats(self) -> list[Seat]:
        """Return every live seat."""
        return [
            instance.seat
            for space in self._namespaces.values()
            for instance in space.instances.values()
            if instance.seat is not None and instance.expires is None
        ]

    def executors(self, namespace: str) -> list[executor_service_pb2.Executor]:
        """Describe the executors of a namespace that are connected or within their grace, by id."""
        space = self._namespaces.get(namespace)
        if space is None:
            return []
        return [
            _describe(instance.seat, connected=instance.expires is None)
            for _, instance in sorted(space.instances.items())
            if instance.seat is not None
        ]

    def version(self, namespace: str) -> int:
        """Return a number that is another one whenever what executors of the namespace offer has changed."""
        space = self._namespaces.get(namespace)
        return space.version if space is not None else 0

    def offering(
        self, namespace: str, selector: Selector
    ) -> Iterator[tuple[Seat, dict[tuple[str, str], int]]]:
        """Yield the last seat of each instance that offers its tools, and since when it has each, as a counter.

        An executor within its grace still offers: a stream that breaks for a second must not change what a model sees.
        One that is drained does not, because nobody may come after it.
        """
        space = self._namespaces.get(namespace)
        for instance in space.instances.values() if space is not None else ():
            seat = instance.seat
            if (
                seat is not None
                and seat.max_in_flight
                and not seat.draining
                and seat.bears(selector)
            ):
                yield seat, instance.tools_since

    # ---- inside ----------------------------------------------------------------------------------

    def _current(self, seat: Seat) -> _Instance | None:
        space = self._namespaces.get(seat.namespace)
        instance = space.instances.get(seat.executor_id) if space is not None else None
        if instance is None or instance.seat is not seat or instance.expires is not None:
            return None
        return instance

    def _is_current(self, seat: Seat) -> bool:
        return self._current(seat) is not None

    def _start_grace(
        self, namespace: str, executor_id: str, instance: _Instance, now: Instant
    ) -> None:
        instance.expires = after(now, self._lost_grace)
        self._graces[namespace, executor_id] = instance.expires

    def _remove(self, namespace: str, executor_id: str) -> None:
        space = self._namespaces[namespace]
        del space.instances[executor_id]
        self._graces.pop((namespace, executor_id), None)
        self._changed(space)
        # The namespace itself stays, though it may be empty: its version must never go back to one that was seen.

    def _shut(self, seat: Seat | None) -> None:
        if seat is not None:
            seat.is_open = False
            seat.load = NO_ROOM

    def _changed(self, space: _Namespace) -> None:
        space.version += 1
        space.candidates.clear()

    def _note_tools(self, instance: _Instance, abilities: Abilities) -> None:
        known = instance.tools_since
        since: dict[tuple[str, str], int] = {}
        for name, offer in abilities.tools.items():
            self._tools_seen += 1
            since[name, offer.digest] = known.get((name, offer.digest), self._tools_seen)
        instance.tools_since = since

    def _candidates(
        self, namespace: str, key: RequirementKey, selector: Selector
    ) -> Sequence[Seat]:
        space = self._namespaces.get(namespace)
        if space is None:
            return ()
        candidates = space.candidates.get((key, selector))
        return candidates if candidates is not None else self._find(space, key, selector)

    def _find(self, space: _Namespace, key: RequirementKey, selector: Selector) -> list[Seat]:
        if len(space.candidates) >= MAX_REMEMBERED_LISTS:
            space.candidates.clear()
        found = [
            instance.seat
            for instance in space.instances.values()
            if instance.seat is not None
            and instance.seat.is_open
            and instance.seat.abilities.can(key)
            and instance.seat.bears(selector)
        ]
        # So that the first task after every change doesn't go to the executor that joined first.
        found.sort(key=lambda seat: seat.load)
        space.candidates[key, selector] = found
        return found

    def _weigh(self, seat: Seat) -> None:
        """Work out the load of a seat again, and tell if it has room now that it had not before."""
        had_room = seat.load < 1
        if (
            seat.in_flight < seat.max_in_flight
            and seat.is_open
            and not seat.paused
            and not seat.draining
        ):
            seat.load = seat.in_flight / seat.max_in_flight
            if not had_room:
                self._on_room(seat)
        else:
            seat.load = NO_ROOM


def _lost(
    namespace: str,
    executor_id: str,
    instance: str,
    reason: event_pb2.TaskLossReason.ValueType,
) -> LostInstance:
    return LostInstance(
        namespace=namespace, executor_id=executor_id, instance=instance, reason=reason
    )


def _describe(seat: Seat, *, connected: bool) -> executor_service_pb2.Executor:
    return executor_service_pb2.Executor(
        executor_id=seat.executor_id,
        labels=seat.labels,
        capabilities=seat.abilities.messages(),
        max_in_flight=seat.max_in_flight,
        in_flight=seat.in_flight,
        connect_time=to_timestamp(seat.connect_time),
        connected=connected,
        client_name=seat.client_name,
    )


def _preferred(candidates: list[Seat], instance: str) -> Seat | None:
    """Return a seat of this instance that has room."""
    for seat in candidates:
        if seat.instance == instance and seat.load < NO_ROOM:
            return seat
    return None
