"""What makes a step program wait: one transition, and how its results are read.

Rules: a program that awaits is stopped by a `yield` of what it waits for, and goes on when it is sent the results. So it takes
no event loop, and a program that is not needed any more is simply dropped.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from stepgraph.v1 import transition_pb2

R_co = TypeVar("R_co", covariant=True)

#: Where an effect is: the turn that asked for it, and its position there.
Place = tuple[int, int]


# By identity: messages can't be hashed, and asyncio hashes what it is to await.
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pause(Generic[R_co]):
    """A wait of a step program. Await it, yield it, or answer with it.

    Attributes:
        transition: What is asked for.
        read: What awaiting it gives, of the results in request order. It may raise EffectFailed.
    """

    transition: transition_pb2.Transition
    read: Callable[[tuple[transition_pb2.EffectResult, ...]], R_co]

    def __await__(self) -> Generator[object, object, R_co]:
        return self.read((yield from awaiting(self)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """A wait until at least one of some places has ended.

    Attributes:
        transition: What is asked for besides; None if everything was asked for before.
        places: The places. None means those of the transition.
    """

    transition: transition_pb2.Transition | None
    places: frozenset[Place] | None

    def __await__(self) -> Generator[object, object, Told]:
        return (yield from waiting(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a program that waits is sent.

    Attributes:
        places: Where what it asked for is, in request order.
        ended: What has ended of what it waits for.
    """

    places: tuple[Place, ...]
    ended: dict[Place, transition_pb2.EffectResult]


class _Running(threading.local):
    """Whether this thread is inside of a step program just now."""

    program: bool = False


_RUNNING: Final = _Running()


@contextmanager
def inside_of_a_program() -> Iterator[None]:
    """Let effects be awaited. Held only while a program is being sent something, so no task of asyncio is ever inside of it."""
    _RUNNING.program = True
    try:
        yield
    finally:
        _RUNNING.program = False


def waiting(pause: Pause[object] | AnyOf) -> Generator[object, object, Told]:
    """Stop the program until it is told what it waits for.

    Raises:
        RuntimeError: What awaits is no step program.
    """
    if not _RUNNING.program:
        message = (
            "effects are awaited by a step program itself (`async def` behind @executor.step), and not by tasks of asyncio: "
            "write `await ctx.all(a, b)` in place of asyncio.gather(a, b), and ctx.sleep in place of asyncio.timeout"
        )
        raise RuntimeError(message)
    told = yield pause
    assert isinstance(told, Told), "the driver of programs sends nothing else"
    return told


def awaiting(
    pause: Pause[object],
) -> Generator[object, object, tuple[transition_pb2.EffectResult, ...]]:
    """Stop the program until all has ended; the results are in request order. Raises as `waiting`."""
    told = yield from waiting(pause)
    return tuple(told.ended[place] for place in told.places)
