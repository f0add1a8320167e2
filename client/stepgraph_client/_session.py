"""The executor's half of its sessions: frames in, frames out. Pure.

Rules: nothing here waits, logs, reads a clock or runs a function. One ExecutorSession lives as long as the process; streams
come and go under it. Whoever owns it calls `connected` for each new stream, gives it the bytes that are received and the
time, handles the events that come back in order, and sends what `data_to_send` returns, in order.

A result is kept until the server says what became of it. On a new stream everything that is held or kept is listed, and
what the server still wants goes on: so a stream that breaks costs nothing, and nothing is reported twice.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from google.protobuf.message import DecodeError

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_client import _outcomes, _wire
from stepgraph_client._outcomes import Limits
from stepgraph_client._session_events import (
    Acked,
    Attempt,
    CancelRequested,
    DrainRequested,
    ExecutorEvent,
    Identity,
    PingReceived,
    Rejected,
    ServerSilent,
    TasksReceived,
    Welcomed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.duration_pb2 import Duration

    from stepgraph.v1 import task_pb2

PROTOCOL_VERSION: Final = 1
#: Where batches are cut.
MAX_BATCH_BYTES: Final = 1024 * 1024
#: Progress that may wait for a stream. More of it is dropped: it is for those who watch now.
MAX_WAITING_PROGRESS_BYTES: Final = 1024 * 1024
#: Until the welcome says how long the server may be silent.
DEFAULT_PING_INTERVAL_S: Final = 5.0
DEFAULT_SILENCE_LIMIT_S: Final = 15.0


class State(enum.Enum):
    """Where the session is."""

    #: There is no stream.
    APART = "apart"
    #: The hello is on its way.
    GREETING = "greeting"
    #: It was welcomed.
    LIVE = "live"
    #: It has said bye.
    DONE = "done"


@dataclass(slots=True)
class _Held:
    """An attempt that is worked on."""

    #: The index of its next piece of progress.
    next_index: int = 0


@dataclass(slots=True)
class _Kept:
    """A result that is not acknowledged."""

    data: bytes
    #: The frame of this stream that it went up in; 0 if none.
    ordinal: int = 0
    #: It stands in for a result that the server couldn't take.
    is_substitute: bool = False


class ExecutorSession:
    """All sessions of one executor process."""

    def __init__(
        self, identity: Identity, capabilities: Iterable[pb.Capability], max_in_flight: int
    ) -> None:
        self._identity: Final = identity
        self._capabilities: list[pb.Capability] = list(capabilities)
        self._max_in_flight = max_in_flight
        self._limits = Limits()
        self._state = State.APART
        self._held: dict[Attempt, _Held] = {}
        self._kept: dict[Attempt, _Kept] = {}
        # What the hello of this stream has listed.
        self._listed_held: tuple[Attempt, ...] = ()
        self._listed_kept: tuple[Attempt, ...] = ()
        self._ping_interval_s = DEFAULT_PING_INTERVAL_S
        self._silence_limit_s = DEFAULT_SILENCE_LIMIT_S
        self._last_heard = 0.0
        self._last_tick = 0.0
        self._progress: dict[Attempt, list[bytes]] = {}
        self._progress_bytes = 0
        self._forget_stream()

    def _forget_stream(self) -> None:
        self._sent = 0
        self._received = 0
        self._hello: pb.Hello | None = None
        # Dictionaries, because what is finished within one turn of the loop need not be accepted first.
        self._to_accept: dict[Attempt, None] = {}
        self._to_report: dict[Attempt, None] = {}
        self._updates: list[pb.Update] = []
        self._rejects: list[pb.Reject] = []
        self._pongs: list[pb.Pong] = []
        self._bye: pb.Bye | None = None

    @property
    def state(self) -> State:
        """Where the session is."""
        return self._state

    @property
    def held(self) -> int:
        """How many attempts are worked on."""
        return len(self._held)

    @property
    def unacknowledged(self) -> int:
        """How many results are kept."""
        return len(self._kept)

    @property
    def limits(self) -> Limits:
        """What the server takes, as far as it is known."""
        return self._limits

    def holds(self, attempt: Attempt) -> bool:
        """Whether an attempt is worked on."""
        return attempt in self._held

    # ---- streams ---------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """Begin a new stream: the hello is ready to be sent."""
        self._forget_stream()
        self._state = State.GREETING
        self._last_heard = self._last_tick = now
        self._listed_held = tuple(self._held)
        self._listed_kept = tuple(self._kept)
        for kept in self._kept.values():
            kept.ordinal = 0
        identity = self._identity
        self._hello = pb.Hello(
            protocol_version=PROTOCOL_VERSION,
            executor_id=identity.executor_id,
            instance_token=identity.instance_token,
            namespace=identity.namespace,
            labels=identity.labels,
            capabilities=self._capabilities,
            max_in_flight=self._max_in_flight,
            held_attempts=[_ref(attempt) for attempt in self._listed_held],
            unacknowledged_results=[_ref(attempt) for attempt in self._listed_kept],
            client_name=identity.client_name,
        )

    def disconnected(self) -> None:
        """The stream has ended, whoever ended it. What is held and kept stays."""
        self._forget_stream()
        self._state = State.APART

    def receive(self, data: bytes, now: float) -> list[ExecutorEvent]:
        """Take one frame, a serialized ConnectResponse, and return what it means."""
        self._received += 1
        self._last_heard = now
        try:
            frame = pb.ConnectResponse.FromString(data)
        except DecodeError:
            return self._refuse("INVALID_REQUEST", "the bytes are not a ConnectResponse")
        kind = frame.WhichOneof("frame")
        # The welcome comes first, and once.
        if kind is None or (kind == "welcome") is (self._state is State.LIVE):
            return self._refuse_misplaced(kind)
        match kind:
            case "welcome":
                return [self._take_welcome(frame.welcome)]
            case "tasks":
                return self._take_tasks(frame.tasks)
            case "cancel":
                return self._take_cancel(frame.cancel)
            case "acks":
                return self._take_acks(frame.acks.acks)
            case "drain":
                drain = frame.drain
                return [DrainRequested(reason=drain.reason, grace_s=_seconds(drain.grace))]
            case "reject":
                return [self._take_reject(frame.reject)]
            case "ping":
                self._pongs.append(pb.Pong(nonce=frame.ping.nonce))
                return [PingReceived(nonce=frame.ping.nonce)]
            case _:
                assert_never(kind)

    def _refuse_misplaced(self, kind: str | None) -> list[ExecutorEvent]:
        if kind is None:
            return self._refuse("UNKNOWN_VARIANT", "this executor does not know the kind of frame")
        return self._refuse("INVALID_REQUEST", f"a {kind} is out of place")

    def _refuse(self, reason: str, message: str) -> list[ExecutorEvent]:
        self._rejects.append(
            pb.Reject(frame_ordinal=self._received, reason=reason, message=message)
        )
        return []

    def _take_welcome(self, welcome: pb.Welcome) -> Welcomed:
        self._state = State.LIVE
        self._last_tick = self._last_heard
        self._ping_interval_s = _seconds(welcome.ping_interval) or DEFAULT_PING_INTERVAL_S
        self._silence_limit_s = _seconds(welcome.silence_limit) or DEFAULT_SILENCE_LIMIT_S
        default = Limits()
        self._limits = Limits(
            max_inline_value_bytes=welcome.max_inline_value_bytes or default.max_inline_value_bytes,
            max_frame_bytes=welcome.max_frame_bytes or default.max_frame_bytes,
        )
        wanted = {(ref.task_id, ref.attempt) for ref in welcome.wanted_attempts}
        wanted |= {(ref.task_id, ref.attempt) for ref in welcome.wanted_results}
        lost: list[Attempt] = []
        dropped = 0
        for attempt in (*self._listed_held, *self._listed_kept):
            if attempt in wanted:
                continue
            if self._held.pop(attempt, None) is not None:
                self._drop_progress(attempt)
                lost.append(attempt)
            # What was held when the hello was made may have been finished since.
            elif self._kept.pop(attempt, None) is not None:
                dropped += 1
        self._to_report = dict.fromkeys(self._kept)
        return Welcomed(welcome=welcome, lost=lost, dropped=dropped)

    def _take_tasks(self, tasks: pb.Tasks) -> list[ExecutorEvent]:
        events = self._take_acks(tasks.acks) if tasks.acks else []
        new: list[task_pb2.Task] = []
        for task in tasks.tasks:
            attempt = (task.task_id, task.attempt)
            if attempt not in self._held and attempt not in self._kept:
                self._held[attempt] = _Held()
                self._to_accept[attempt] = None
                new.append(task)
        if new:
            events.append(TasksReceived(tasks=new))
        return events

    def _take_cancel(self, cancel: pb.Cancel) -> list[ExecutorEvent]:
        # The result of an attempt that isn't held any more is on its way, and says more than a cancellation.
        attempts = [
            attempt
            for ref in cancel.attempts
            if (attempt := (ref.task_id, ref.attempt)) in self._held
        ]
        if not attempts:
            return []
        grace_s = _seconds(cancel.grace)
        return [CancelRequested(attempts=attempts, reason=cancel.reason, grace_s=grace_s)]

    def _take_acks(self, acks: Sequence[pb.Ack]) -> list[ExecutorEvent]:
        for ack in acks:
            self._kept.pop((ack.task_id, ack.attempt), None)
        return [Acked(acks=acks)]

    def _take_reject(self, reject: pb.Reject) -> Rejected:
        failed: list[Attempt] = []
        dropped: list[Attempt] = []
        if reject.frame_ordinal:
            for attempt, kept in self._kept.items():
                if kept.ordinal == reject.frame_ordinal:
                    (dropped if kept.is_substitute else failed).append(attempt)
        for attempt in failed:
            data = _outcomes.refused(self._kept[attempt].data, reject)
            self._kept[attempt] = _Kept(data=data, is_substitute=True)
            self._to_report[attempt] = None
        for attempt in dropped:
            del self._kept[attempt]
        return Rejected(reject=reject, failed=tuple(failed), dropped=tuple(dropped))

    # ---- work ------------------------------------------------------------------------------------

    def finish(self, attempt: Attempt, outcome: bytes) -> bool:
        """Report how an attempt has ended, as a serialized AttemptOutcome that names the same attempt.

        Returns False if the attempt is not held any more, and nobody wants to know.
        """
        if self._held.pop(attempt, None) is None:
            return False
        self._kept[attempt] = _Kept(data=outcome)
        self._to_accept.pop(attempt, None)
        if self._state is State.LIVE:
            self._to_report[attempt] = None
        return True

    def show(self, attempt: Attempt, progress: task_pb2.TaskProgress) -> bool:
        """Show progress of an attempt; its index is set here. False if the attempt is not held any more."""
        held = self._held.get(attempt)
        if held is None:
            return False
        progress.index = held.next_index
        # Counted on although it may be dropped: whoever watches sees the gap.
        held.next_index += 1
        data = progress.SerializeToString()
        if self._progress_bytes + len(data) <= MAX_WAITING_PROGRESS_BYTES:
            self._progress.setdefault(attempt, []).append(data)
            self._progress_bytes += len(data)
        return True

    def live(self, attempt: Attempt) -> None:
        """Give a mere sign of life of an attempt."""
        if attempt in self._held:
            self._progress.setdefault(attempt, [])

    def give_back(self, attempt: Attempt, reason: str, message: str) -> None:
        """Reject an attempt: this executor can't work on it. `reason` is a name of ErrorReason."""
        if self._held.pop(attempt, None) is not None:
            self._to_accept.pop(attempt, None)
            self._drop_progress(attempt)
            self._rejects.append(pb.Reject(attempt=_ref(attempt), reason=reason, message=message))

    def _drop_progress(self, attempt: Attempt) -> None:
        self._progress_bytes -= sum(map(len, self._progress.pop(attempt, ())))

    # ---- changes ---------------------------------------------------------------------------------

    def resize(self, max_in_flight: int) -> None:
        """Take so many attempts at once from now on; 0 means no more."""
        self._max_in_flight = max_in_flight
        self._updates.append(pb.Update(max_in_flight=max_in_flight))

    def add(self, capability: pb.Capability) -> None:
        """Be able to do more from now on."""
        self._capabilities.append(capability)
        self._updates.append(pb.Update(added_capabilities=[capability]))

    def remove(self, capability: pb.Capability) -> None:
        """Not be able to do something any more; it must be one that was given before. What is held goes on."""
        self._capabilities.remove(capability)
        self._updates.append(pb.Update(removed_capabilities=[capability]))

    def bye(self, reason: str) -> None:
        """Say that nothing more will come; the server ends the stream. What is still held is lost."""
        self._bye = pb.Bye(reason=reason)

    # ---- up --------------------------------------------------------------------------------------

    def data_to_send(self) -> list[bytes]:
        """Take everything that is ready, as serialized ConnectRequest frames, to be sent in this order."""
        if self._state is State.GREETING:
            # Nothing goes before the welcome: it says what is wanted.
            hello, self._hello = self._hello, None
            frames = [] if hello is None else [pb.ConnectRequest(hello=hello).SerializeToString()]
            self._sent += len(frames)
            return frames
        if self._state is not State.LIVE:
            return []
        out: list[bytes] = []
        if self._updates:
            out += (
                pb.ConnectRequest(update=update).SerializeToString() for update in self._updates
            )
            self._updates = []
        if self._to_accept:
            out += self._take_accepted()
        if self._progress:
            # Before results: what an attempt showed comes before how it ended.
            out += self._take_progress()
        self._sent += len(out)
        if self._to_report:
            out += self._take_results()
        if self._rejects or self._pongs or self._bye is not None:
            rare = self._take_rare()
            self._sent += len(rare)
            out += rare
        return out

    def _take_accepted(self) -> list[bytes]:
        refs = [_serialized_ref(attempt) for attempt in self._to_accept]
        self._to_accept = {}
        return [
            _wire.delimited(_ACCEPTED, _wire.repeated(_ACCEPTED_ATTEMPT, batch))
            for batch in _wire.batches(refs, self._batch_bytes())
        ]

    def _take_progress(self) -> list[bytes]:
        items: list[bytes] = []
        for attempt, pieces in self._progress.items():
            head = _serialized_ref(
                attempt
            )  # the fields of an AttemptRef are the first two here, too
            items += [
                head + _wire.repeated(_PROGRESS_PIECE, batch)
                for batch in _wire.batches(pieces, self._batch_bytes() - len(head))
            ] or [head]
        self._progress = {}
        self._progress_bytes = 0
        return [
            _wire.delimited(_PROGRESS, _wire.repeated(_PROGRESS_ITEM, batch))
            for batch in _wire.batches(items, self._batch_bytes())
        ]

    def _take_results(self) -> list[bytes]:
        attempts = list(self._to_report)
        self._to_report = {}
        for attempt in attempts:
            kept = self._kept[attempt]
            kept.data = _outcomes.fitting(kept.data, self._limits)
        frames: list[bytes] = []
        at = 0
        for batch in _wire.batches(
            [self._kept[attempt].data for attempt in attempts], self._batch_bytes()
        ):
            frames.append(_wire.delimited(_RESULTS, _wire.repeated(_OUTCOME, batch)))
            self._sent += 1
            for attempt in attempts[at : at + len(batch)]:
                self._kept[attempt].ordinal = self._sent
            at += len(batch)
        return frames

    def _take_rare(self) -> list[bytes]:
        rare = [pb.ConnectRequest(reject=reject) for reject in self._rejects]
        rare += [pb.ConnectRequest(pong=pong) for pong in self._pongs]
        self._rejects, self._pongs = [], []
        if self._bye is not None:
            rare.append(pb.ConnectRequest(bye=self._bye))
            self._bye = None
            self._state = State.DONE
        return [frame.SerializeToString() for frame in rare]

    def _batch_bytes(self) -> int:
        return min(MAX_BATCH_BYTES, self._limits.max_frame_bytes // 2)

    # ---- time ------------------------------------------------------------------------------------

    def tick(self, now: float) -> list[ExecutorEvent]:
        """Let time pass: say whether the server has been silent for too long."""
        if self._state is State.APART:
            return []
        # A tick that comes much too late says that this process slept, not that the server was silent.
        slept = now - self._last_tick - 2 * self._ping_interval_s
        if slept > 0:
            self._last_heard = min(now, self._last_heard + slept)
        self._last_tick = now
        silence_s = now - self._last_heard
        return [ServerSilent(silence_s=silence_s)] if silence_s >= self._silence_limit_s else []

    def next_tick(self) -> float:
        """Return when `tick` is due; earlier is harmless."""
        return min(
            self._last_heard + self._silence_limit_s, self._last_tick + self._ping_interval_s
        )


_ACCEPTED: Final = _wire.tag(pb.ConnectRequest, "accepted")
_ACCEPTED_ATTEMPT: Final = _wire.tag(pb.Accepted, "attempts")
_RESULTS: Final = _wire.tag(pb.ConnectRequest, "results")
_OUTCOME: Final = _wire.tag(pb.Results, "outcomes")
_PROGRESS: Final = _wire.tag(pb.ConnectRequest, "progress")
_PROGRESS_ITEM: Final = _wire.tag(pb.ProgressReport, "items")
_PROGRESS_PIECE: Final = _wire.tag(pb.AttemptProgress, "progress")
_REF_TASK_ID: Final = _wire.tag(pb.AttemptRef, "task_id")
_REF_ATTEMPT: Final = _wire.number_tag(pb.AttemptRef, "attempt")


def _ref(attempt: Attempt) -> pb.AttemptRef:
    return pb.AttemptRef(task_id=attempt[0], attempt=attempt[1])


def _serialized_ref(attempt: Attempt) -> bytes:
    task_id = attempt[0].encode()
    return b"".join(
        (_REF_TASK_ID, _wire.varint(len(task_id)), task_id, _REF_ATTEMPT, _wire.varint(attempt[1]))
    )


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9
