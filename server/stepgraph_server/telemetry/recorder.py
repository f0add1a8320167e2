"""Where spans are made and sent: a thread of its own, behind a bounded queue.

Rules: the loop hands over what became durable and goes on; it never waits for this thread, and nothing that goes wrong here
concerns a run. What comes faster than it can be taken is dropped and counted, and so is what can't be sent. Each counter has
one thread that writes it, so none needs a lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from stepgraph_server.telemetry import names
from stepgraph_server.telemetry.projector import Projector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_server.telemetry.projector import Durable, History
    from stepgraph_server.telemetry.spans import EndedSpan

_log = logging.getLogger(__name__)

MAX_WAITING_EVENTS: Final = 20_000
"""So many events may wait to become spans: a few seconds of a busy server that records every run."""

MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
"""And so many bytes of them: each may carry a result of 256 KiB."""

BATCH_SPANS: Final = 256
"""So many are sent at once. Encoding more would keep the interpreter from the loop for longer."""

SLICE_SPANS: Final = 16
"""After so many the loop gets its turn: a thread that computes gives the interpreter away only every 5 ms."""

QUIET_S: Final = 60.0
"""For so long it is not said again that spans are lost."""


class SpanSink(Protocol):
    """Where ended spans go."""

    def send(self, spans: Sequence[EndedSpan]) -> bool:
        """Send them, which may take seconds, and return whether somebody has them. Called by the recorder's thread."""
        ...

    def close(self) -> None:
        """Make a `send` that is under way, and all that follow, end at once. Called by any thread."""
        ...


@dataclass(slots=True)
class Lost:
    """What did not become a span that somebody has."""

    #: Events that came too fast. About every second one would have ended a span. Written by the loop.
    overflowed: int = 0
    #: Events that could not be understood without what came before, which could not be read. Written by the thread.
    unread: int = 0
    #: Spans that could not be sent. Written by the thread.
    unsent: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return self.overflowed + self.unread + self.unsent


class SpanRecorder:
    """Records the spans of runs that are sampled. `offer` is called on the loop; the rest happens in the thread."""

    def __init__(self, sink: SpanSink, history: History, delay_s: float) -> None:
        """`delay_s` is the longest that a span waits for others to be sent with."""
        self._sink = sink
        self._delay_s = delay_s
        self._projector = Projector(history)
        self._intake: deque[Durable] = deque()
        self._events_in = self._bytes_in = 0  # written by the loop
        self._events_out = self._bytes_out = 0  # written by the thread
        self._wake = threading.Event()
        self._closing = False
        self._said_total = 0
        self._quiet_until = float("-inf")
        self.lost = Lost()
        #: Spans that somebody has.
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="stepgraph-spans", daemon=True)

    def start(self) -> None:
        """Begin. Call it once."""
        self._thread.start()

    def offer(self, durable: Durable) -> None:
        """Take what became durable of a sampled run, if there is room. Returns at once."""
        count = len(durable.events)
        if (
            self._events_in - self._events_out + count > MAX_WAITING_EVENTS
            or self._bytes_in - self._bytes_out + durable.size > MAX_WAITING_BYTES
        ):
            self.lost.overflowed += count
            return
        self._events_in += count
        self._bytes_in += durable.size
        self._intake.append(durable)

    def close(self, patience_s: float) -> None:
        """Send what there is for as long as that may take, then give up. It blocks, so call it beside the loop."""
        self._closing = True
        self._wake.set()
        self._thread.join(patience_s)
        # A daemon: if even this does not end it, it can't keep the process from ending.
        self._sink.close()
        self._thread.join(patience_s)
        self._say_lost(left=self._events_in - self._events_out)

    # Everything below runs in the thread.

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._delay_s)
            is_last = self._closing
            try:
                self._turn()
            except Exception:  # noqa: BLE001  # it is logged, and the thread must go on
                # A fault of ours must not end what the next turn may do well.
                _log.exception("Spans were lost by a fault", extra={"action": names.SPANS_FAULT})
            if not is_last:
                self._say_lost()

    def _turn(self) -> None:
        """Make spans of what waits now and send them; what comes meanwhile is for the next turn."""
        spans: list[EndedSpan] = []
        unsliced = 0
        for _ in range(len(self._intake)):
            durable = self._intake.popleft()
            self._events_out += len(durable.events)
            self._bytes_out += durable.size
            made = self._projector.take(durable)
            if made is None:
                self.lost.unread += len(durable.events)
                continue
            spans += made
            unsliced += len(made)
            if unsliced >= SLICE_SPANS:
                unsliced = 0
                time.sleep(0)
            if len(spans) >= BATCH_SPANS:
                self._send(spans)
                spans = []
        if spans:
            self._send(spans)

    def _send(self, spans: Sequence[EndedSpan]) -> None:
        if self._sink.send(spans):
            self.sent += len(spans)
        else:
            self.lost.unsent += len(spans)

    def _say_lost(self, left: int = 0) -> None:
        """Say what was lost since it was said last; not often, except at the end."""
        lost, now = self.lost, time.monotonic()  # noqa: TID251  # a thread without a clock of the server's
        total = lost.total + left
        if total == self._said_total or (now < self._quiet_until and not self._closing):
            return
        self._said_total, self._quiet_until = total, now + QUIET_S
        _log.warning(
            "Spans are missing in traces",
            extra={
                "action": names.SPANS_LOST,
                "unsent_spans": lost.unsent,
                "dropped_events": lost.overflowed + lost.unread + left,
            },
        )
