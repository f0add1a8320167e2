"""Step programs that are kept between two polls, so that nothing is replayed as long as a process lives.

Rules: a program is held by nobody while it is polled; who has it must be the last attempt that took it. What is kept is bounded by
count and by bytes, and the one that was not polled for longest is given up first: it can be begun again from its history.
Everything here is called on the event loop.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph_client.task_errors import TurnsNotHeld
from stepgraph_client.transitions import Goto

if TYPE_CHECKING:
    from stepgraph.v1 import transition_pb2
    from stepgraph_client.step_programs import CoroutineProgram, FunctionProgram, GeneratorProgram

    Kept: TypeAlias = FunctionProgram | GeneratorProgram | CoroutineProgram

_log = logging.getLogger("stepgraph_client.executor")

#: So many bytes of polls and replies, which programs may remember, are kept at most.
MAX_HELD_BYTES: Final = 256 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Lease:
    """A program that is taken out for one poll."""

    key: str
    #: What it may remember of the turns before.
    held_bytes: int


@dataclass(slots=True, kw_only=True)
class _Held:
    program: Kept
    held_bytes: int


class HeldPrograms:
    """The programs of one executor."""

    def __init__(self, max_held: int, max_bytes: int = MAX_HELD_BYTES) -> None:
        self._max_held: Final = max_held
        self._max_bytes: Final = max_bytes
        self._held: Final[OrderedDict[str, _Held]] = OrderedDict()
        self._held_bytes = 0
        #: Who polls which program just now.
        self._leases: Final[dict[str, Lease]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, task_id: str, poll: transition_pb2.StepContext) -> tuple[Kept | None, Lease]:
        """Take out the program that a poll is for; None if it begins, or is to be replayed from the poll's history.

        Every lease goes back by `keep` or `give_up`.

        Raises:
            TurnsNotHeld: Turns are missing.
        """
        # `<run>/<activation>/t<turn>/poll`
        key = task_id.rpartition("/")[0].rpartition("/")[0]
        held = self._pop(key)
        # A poll that brings history says that another process, or another attempt, was the last to answer.
        if held is not None and (poll.history or not poll.turn or held.program.turn != poll.turn):
            _close(held.program)
            held = None
        if held is None and (poll.history_start or len(poll.history) < poll.turn):
            message = (
                f"this process does not hold the turns before {poll.history_start or poll.turn}"
            )
            raise TurnsNotHeld(message)
        lease = Lease(
            key=key, held_bytes=poll.ByteSize() + (0 if held is None else held.held_bytes)
        )
        self._leases[key] = lease
        return (None if held is None else held.program), lease

    def keep(self, lease: Lease, program: Kept, reply_bytes: int) -> None:
        """Keep a program that has answered until its next poll, unless another attempt has taken its place."""
        if not self._is_last(lease):
            _close(program)
            return
        held = _Held(program=program, held_bytes=lease.held_bytes + reply_bytes)
        self._held[lease.key] = held
        self._held_bytes += held.held_bytes
        while len(self._held) > self._max_held or self._held_bytes > self._max_bytes:
            oldest = self._pop(next(iter(self._held)))
            assert oldest is not None, "there is one, or nothing would be too much"
            _close(oldest.program)

    def give_up(self, lease: Lease, program: Kept) -> None:
        """Keep nothing: it has ended, or failed."""
        self._is_last(lease)
        _close(program)

    def _is_last(self, lease: Lease) -> bool:
        """Whether nobody has taken the program since. The lease is over."""
        if self._leases.get(lease.key) is not lease:
            return False
        del self._leases[lease.key]
        return True

    def _pop(self, key: str) -> _Held | None:
        held = self._held.pop(key, None)
        if held is not None:
            self._held_bytes -= held.held_bytes
        return held


def _close(program: Kept) -> None:
    try:
        program.close()
    except (Exception, Goto) as error:  # noqa: BLE001  # it is not needed any more, whatever it says
        text = "a step program that was given up has raised while it ended"
        _log.warning(text, extra={"action": "program.close_failed"}, exc_info=error)
