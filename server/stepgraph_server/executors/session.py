"""The server's half of one session: frames in, frames out. Pure.

Rules: nothing here waits, logs, reads a clock or knows a run. Whoever owns a session gives it the bytes that were received
and the time, handles the events that come back in order, and sends what `data_to_send` returns, in order.

A frame that can't be taken is answered with a reject frame and changes nothing; the session lives on. Only a hello that
can't be taken, silence, and a peer that sends nothing but nonsense end it.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, assert_never

from google.protobuf.message import DecodeError

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_server.core.errors import Violation
from stepgraph_server.core.instants import Span, after, to_duration
from stepgraph_server.executors import batches, frames
from stepgraph_server.executors.capabilities import NOTHING, change
from stepgraph_server.executors.session_events import (
    AttemptRejected,
    AttemptsAccepted,
    ByeReceived,
    CapabilitiesChanged,
    CapacityChanged,
    OutcomesReceived,
    ProgressReceived,
    SessionClosed,
    SessionEvent,
    Terms,
)
from stepgraph_server.executors.violations import ViolationError, refuse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from stepgraph_server.core.instants import Instant
    from stepgraph_server.executors.capabilities import Abilities
    from stepgraph_server.executors.seats import Ack, Wanted

PROTOCOL_VERSION: Final = 1
#: Reject frames that may wait to be sent. A peer that makes more and does not read them is let go.
MAX_WAITING_REJECTS: Final = 1_000


class State(enum.Enum):
    """Where a session is."""

    #: Nothing was received.
    NEW = "new"
    #: The hello was taken.
    LIVE = "live"
    #: No more tasks will be sent.
    DRAINING = "draining"
    #: It is over; nothing is taken or sent any more.
    CLOSED = "closed"


#: What a frame does in each state. A frame that is not here is out of place.
TRANSITIONS: Final[Mapping[tuple[State, str], State]] = {
    (State.NEW, "hello"): State.LIVE,
    **{
        (state, kind): state
        for state in (State.LIVE, State.DRAINING)
        for kind in ("accepted", "results", "progress", "update", "reject", "pong")
    },
    (State.LIVE, "bye"): State.CLOSED,
    (State.DRAINING, "bye"): State.CLOSED,
}


class ServerSession:
    """One session, from the first frame to the end.

    After HelloReceived call `welcome`; what is sent before waits for it. After SessionClosed or ByeReceived send what
    `data_to_send` still returns, then end the stream.
    """

    def __init__(self, terms: Terms, now: Instant) -> None:
        self._terms: Final = terms
        self._state = State.NEW
        self._received = 0
        self._abilities: Abilities = NOTHING
        self._welcome: pb.Welcome | None = None
        self._welcomed = False
        self._acks: list[bytes] = []
        self._tasks: list[bytes] = []
        self._waiting_bytes = 0
        self._cancels: list[pb.Cancel] = []
        self._drain: pb.Drain | None = None
        self._rejects: list[pb.Reject] = []
        self._pings: list[pb.Ping] = []
        self._nonce = 0
        self._last_heard = now
        self._last_spoken = now
        self._last_ping = now
        self._last_tick = now

    @property
    def state(self) -> State:
        """Where the session is."""
        return self._state

    @property
    def waiting_bytes(self) -> int:
        """The size of tasks and acks that wait to be taken by `data_to_send`."""
        return self._waiting_bytes

    # ---- up --------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: Instant) -> list[SessionEvent]:
        """Take one frame, a serialized ConnectRequest, and return what it means."""
        self._received += 1
        self._last_heard = max(now, self._last_heard)
        if self._state is State.CLOSED:
            return []
        try:
            return self._take(self._parse(data), len(data))
        except ViolationError as refused:
            return self._refuse(refused.violation)

    def _parse(self, data: bytes) -> pb.ConnectRequest:
        limit = self._terms.max_frame_bytes
        if len(data) > limit:
            message = f"the frame has {len(data)} bytes, of at most {limit}"
            refuse("", message, "PAYLOAD_TOO_LARGE")
        try:
            return pb.ConnectRequest.FromString(data)
        except DecodeError:
            refuse("", "the bytes are not a ConnectRequest")

    def _take(self, frame: pb.ConnectRequest, size: int) -> list[SessionEvent]:
        kind = frame.WhichOneof("frame")
        if kind is None or (self._state, kind) not in TRANSITIONS:
            return self._refuse(self._misplaced(kind))
        events: list[SessionEvent]
        match kind:
            case "hello":
                events = self._take_hello(frame.hello)
            case "accepted":
                events = [AttemptsAccepted(attempts=frames.check_attempts(frame.accepted))]
            case "results":
                events = self._take_results(frame.results, size)
            case "progress":
                events = self._take_progress(frame.progress, size)
            case "update":
                events = self._take_update(frame.update)
            case "reject":
                events = self._take_reject(frame.reject)
            case "pong":
                events = []  # like every frame it is a sign of life, and that is all
            case "bye":
                events = [ByeReceived(reason=frame.bye.reason)]
            case _:
                assert_never(kind)
        self._state = TRANSITIONS[self._state, kind]
        return events

    def _misplaced(self, kind: str | None) -> Violation:
        if self._state is State.NEW:
            message = f"the first frame must be a hello, not {kind or 'an unknown one'}"
            return Violation(path="frame", message=message)
        if kind is None:
            message = "the frame is unset, or of a kind that this server does not know"
            return Violation(path="frame", message=message, reason="UNKNOWN_VARIANT")
        return Violation(path="frame", message=f"a second {kind} is out of place")

    def _take_hello(self, hello: pb.Hello) -> list[SessionEvent]:
        greeted = frames.check_hello(hello, PROTOCOL_VERSION, self._terms.max_labels)
        self._abilities = greeted.abilities
        for violation in greeted.ignored:
            self._reject_frame(violation)
        return [greeted]

    def _take_results(self, results: pb.Results, size: int) -> list[SessionEvent]:
        outcomes = frames.check_outcomes(results, size, self._terms.max_inline_value_bytes)
        for reject in outcomes.rejects:
            self._reject(reject)
        return [OutcomesReceived(outcomes=outcomes.items)]

    def _take_progress(self, report: pb.ProgressReport, size: int) -> list[SessionEvent]:
        progress = frames.check_progress(report, size)
        for reject in progress.rejects:
            self._reject(reject)
        return [ProgressReceived(items=progress.items)]

    def _take_update(self, update: pb.Update) -> list[SessionEvent]:
        events: list[SessionEvent] = []
        if update.added_capabilities or update.removed_capabilities:
            added, ignored = frames.without_unknown(
                update.added_capabilities, "update.added_capabilities"
            )
            self._abilities = change(
                self._abilities, added=added, removed=update.removed_capabilities
            )
            for violation in ignored:
                self._reject_frame(violation)
            events.append(CapabilitiesChanged(abilities=self._abilities))
        if update.HasField("max_in_flight"):
            events.append(CapacityChanged(max_in_flight=update.max_in_flight))
        return events

    def _take_reject(self, reject: pb.Reject) -> list[SessionEvent]:
        if not reject.HasField("attempt"):
            # About a frame of ours that an older executor doesn't know. It goes on without, and so do we.
            return []
        frames.check_attempt(reject.attempt, "reject.attempt")
        return [
            AttemptRejected(attempt=reject.attempt, reason=reject.reason, message=reject.message)
        ]

    def _refuse(self, violation: Violation) -> list[SessionEvent]:
        if self._state is not State.NEW:
            self._reject_frame(violation)
            if len(self._rejects) <= MAX_WAITING_REJECTS:
                return []
            return self.close(
                "LIMIT_EXCEEDED",
                f"more than {MAX_WAITING_REJECTS} rejects wait for the executor to read them",
                {"limit_name": "waiting_rejects", "limit": str(MAX_WAITING_REJECTS)},
            )
        place = f"{violation.path}: " if violation.path else ""
        special = f"{violation.reason}: " if violation.reason != "INVALID_REQUEST" else ""
        return self.close(
            "HELLO_INVALID",
            f"{special}{place}{violation.message}",
            {"field": violation.path},
            (violation,),
        )

    def _reject_frame(self, violation: Violation) -> None:
        self._reject(
            pb.Reject(
                frame_ordinal=self._received,
                reason=violation.reason,
                message=violation.message,
                field=violation.path,
            )
        )

    def _reject(self, reject: pb.Reject) -> None:
        self._rejects.append(reject)

    # ---- down ------------------------------------------------------------------------------------

    def welcome(self, session_id: str, wanted: Wanted) -> None:
        """Answer the hello. Once, after HelloReceived."""
        assert self._welcome is None, "a hello is answered once"
        terms = self._terms
        self._welcome = pb.Welcome(
            session_id=session_id,
            protocol_version=PROTOCOL_VERSION,
            ping_interval=to_duration(terms.ping_interval),
            silence_limit=to_duration(terms.silence_limit),
            lost_grace=to_duration(terms.lost_grace),
            cancel_grace=to_duration(terms.cancel_grace),
            max_inline_value_bytes=terms.max_inline_value_bytes,
            max_stored_value_bytes=terms.max_stored_value_bytes,
            max_frame_bytes=terms.max_frame_bytes,
            wanted_attempts=wanted.attempts,
            wanted_results=wanted.results,
            server_version=terms.server_version,
        )

    def send_tasks(self, tasks: Iterable[bytes]) -> None:
        """Send serialized `Task` messages. Dropped while DRAINING: the executor was told that none will come."""
        if self._state is State.LIVE:
            for task in tasks:
                self._tasks.append(task)
                self._waiting_bytes += len(task)

    def send_cancels(self, attempts: Sequence[pb.AttemptRef], reason: str, grace: Span) -> None:
        """Ask to stop attempts."""
        if self._takes():
            self._cancels.append(
                pb.Cancel(attempts=attempts, reason=reason, grace=to_duration(grace))
            )

    def send_acks(self, acks: Iterable[Ack]) -> None:
        """Say what became of results."""
        if self._takes():
            for task_id, attempt, verdict in acks:
                ack = batches.serialize_ack(task_id, attempt, verdict)
                self._acks.append(ack)
                self._waiting_bytes += len(ack)

    def send_drain(self, reason: str, grace: Span) -> None:
        """Say that no more tasks will come. Tasks that wait go before it; once is enough."""
        if self._state is State.LIVE:
            self._drain = pb.Drain(reason=reason, grace=to_duration(grace))
            self._state = State.DRAINING

    def reject(self, attempt: pb.AttemptRef, reason: str, message: str) -> None:
        """Say that something about an attempt can't be taken."""
        if self._takes():
            self._reject(pb.Reject(attempt=attempt, reason=reason, message=message))

    def close(
        self,
        reason: str,
        message: str,
        metadata: Mapping[str, str],
        violations: tuple[Violation, ...] = (),
    ) -> list[SessionEvent]:
        """End the session: return SessionClosed, or nothing if it is over already."""
        if self._state is State.CLOSED:
            return []
        self._state = State.CLOSED
        return [
            SessionClosed(reason=reason, message=message, metadata=metadata, violations=violations)
        ]

    def _takes(self) -> bool:
        return self._state in (State.LIVE, State.DRAINING)

    def data_to_send(self, now: Instant) -> list[bytes]:
        """Take everything that is ready, as serialized ConnectResponse frames, to be sent in this order.

        Acks go first: they free the executor's memory. Cancels go after tasks: an attempt may be handed over and stopped
        in one turn, and a cancel of an attempt that the executor never saw would be lost.
        """
        out: list[bytes] = []
        if not self._welcomed:
            if self._welcome is None:
                return out
            out.append(pb.ConnectResponse(welcome=self._welcome).SerializeToString())
            self._welcomed = True
        if self._acks or self._tasks:
            out += batches.frames_of(self._acks, self._tasks)
            self._acks, self._tasks = [], []
            self._waiting_bytes = 0
        if self._cancels or self._rejects or self._pings or self._drain is not None:
            out += (frame.SerializeToString() for frame in self._take_rare())
        if out:
            self._last_spoken = now
        return out

    def _take_rare(self) -> list[pb.ConnectResponse]:
        rare = [pb.ConnectResponse(cancel=cancel) for cancel in self._cancels]
        rare += [pb.ConnectResponse(reject=reject) for reject in self._rejects]
        rare += [pb.ConnectResponse(ping=ping) for ping in self._pings]
        if self._drain is not None:
            rare.append(pb.ConnectResponse(drain=self._drain))
        self._cancels, self._rejects, self._pings, self._drain = [], [], [], None
        return rare

    # ---- time ------------------------------------------------------------------------------------

    def tick(self, now: Instant) -> list[SessionEvent]:
        """Let time pass: ask for a sign of life when one is due, and end the session after too much silence."""
        if self._state is State.CLOSED:
            return []
        # A tick that comes much too late says that this process slept, not that the peer was silent: what it sent in
        # the meantime may not have been read yet.
        slept = now - self._last_tick - 2 * self._terms.ping_interval
        if slept > 0:
            self._last_heard = min(now, after(self._last_heard, Span(slept)))
        self._last_tick = now
        if now >= after(self._last_heard, self._terms.silence_limit):
            seconds = (now - self._last_heard) // 1_000_000
            return self.close(
                "SESSION_SILENT",
                f"nothing was heard from the executor for {seconds} s",
                {"silence_seconds": str(seconds)},
            )
        if self._welcomed and now >= self._next_ping():
            self._nonce += 1
            self._pings = [pb.Ping(nonce=self._nonce)]
            self._last_ping = now
        return []

    def next_tick(self) -> Instant:
        """Return when `tick` is due; earlier is harmless."""
        silent = after(self._last_heard, self._terms.silence_limit)
        return min(silent, self._next_ping()) if self._welcomed else silent

    def _next_ping(self) -> Instant:
        # Whoever has said nothing says something; and whoever hears nothing asks. The latter matters when the server
        # speaks all the time and nothing that it says calls for an answer.
        quiet = min(self._last_spoken, self._last_heard)
        return after(max(quiet, self._last_ping), self._terms.ping_interval)
