"""What a program waits for: what it has asked for, what has ended of it, and whether it can go on.

Rules: pure. Which results belong to what follows from turns and positions, never from the order in which they come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph.v1 import transition_pb2
from stepgraph_client.pauses import AnyOf, Pause, Place, Told

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: A pause waits for all that it asks for, AnyOf for some of it, and a bare transition for whatever the next poll brings.
Asked: TypeAlias = "Pause[object] | AnyOf | transition_pb2.Transition"


class Waits:
    """What one program waits for."""

    def __init__(self) -> None:
        #: Asked for, and not ended.
        self._open: Final[set[Place]] = set()
        #: Ended, and not told.
        self._ended: Final[dict[Place, transition_pb2.EffectResult]] = {}
        #: What the program is to be told of; None: of whatever there is.
        self._wanted: Sequence[Place] | None = ()
        self._enough = 0
        self._waiting = False

    @staticmethod
    def is_ours(asked: object) -> bool:
        """Whether something that a program yields is a wait of ours, and not of an event loop."""
        return isinstance(asked, Pause | AnyOf)

    def tell(self, results: Iterable[transition_pb2.EffectResult]) -> None:
        """Take what has ended."""
        for result in results:
            place = (result.turn, result.index)
            self._open.discard(place)
            self._ended[place] = result

    def ready(self) -> Told | None:
        """Return what the program is told, or None: it does not wait, or not enough has ended."""
        if not self._waiting:
            return None
        wanted = sorted(self._ended) if self._wanted is None else self._wanted
        there = [place for place in wanted if place in self._ended]
        if len(there) < self._enough:
            return None
        self._waiting = False
        return Told(places=tuple(wanted), ended={place: self._ended.pop(place) for place in there})

    def ask(self, asked: Asked, turn: int) -> transition_pb2.Transition | None:
        """Note what the program waits for now. Returns what to answer; None if it can be told at once."""
        self._waiting = True
        transition = asked if isinstance(asked, transition_pb2.Transition) else asked.transition
        if transition is None:
            assert isinstance(asked, AnyOf), "all others ask for something"
            self._wanted, self._enough = sorted(asked.places or ()), 1
            return None if any(place in self._ended for place in self._wanted) else wait_on()
        places = [(turn, index) for index in range(_count(transition))]
        leftovers = bool(self._open)
        self._open.update(places)
        match asked:
            case AnyOf():
                self._wanted, self._enough = places, 1
            case Pause():
                self._wanted, self._enough = places, len(places)
                if not places:
                    return None
            case _:
                self._wanted, self._enough = None, 0
                return transition
        return _waking(transition) if leftovers else transition


def wait_on() -> transition_pb2.Transition:
    """Return what to answer if a program can't go on yet: nothing new is asked for."""
    return transition_pb2.Transition(
        await_effects=transition_pb2.Transition.Await(wake=transition_pb2.WAKE_POLICY_EACH)
    )


def _count(transition: transition_pb2.Transition) -> int:
    match transition.WhichOneof("kind"):
        case "await_effects":
            return len(transition.await_effects.effects)
        case "spawn":
            return len(transition.spawn.specs)
        case _:
            return 1


def _waking(transition: transition_pb2.Transition) -> transition_pb2.Transition:
    """Return the same, that is polled for whatever ends: else it would wait for what the program does not wait for."""
    if not transition.HasField("await_effects"):
        return transition
    changed = transition_pb2.Transition()
    changed.CopyFrom(transition)
    changed.await_effects.wake = transition_pb2.WAKE_POLICY_EACH
    return changed
