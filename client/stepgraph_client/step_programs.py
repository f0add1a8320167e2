"""Step programs of three kinds, as what answers polls: functions, generators, and `async def`.

Rules: a poll is answered with a StepReply, whatever the program is written as. A function is asked anew at every turn. A
generator and an `async def` go on from where they stopped; if they are not there any more, they are begun again and told all
turns so far, and must ask for the same again: a replay that differs is an error, and not a guess. Nothing here knows of attempts.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stepgraph.v1 import transition_pb2
from stepgraph_client.effects import Effect, EffectFailed, await_effects
from stepgraph_client.pauses import Pause, inside_of_a_program
from stepgraph_client.step_context import StepContext
from stepgraph_client.step_labels import difference
from stepgraph_client.step_replies import (
    answer_of,
    ending_of,
    failed_with,
    not_an_answer,
    refuse_what_was_read,
)
from stepgraph_client.step_waits import Waits, wait_on
from stepgraph_client.task_errors import Failed
from stepgraph_client.transitions import Goto

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from stepgraph_client.pauses import Told
    from stepgraph_client.task_context import TaskContext

STEP_DIVERGED: Final = "STEP_DIVERGED"

Call: TypeAlias = "Callable[[StepContext], object]"
Poll: TypeAlias = transition_pb2.StepContext
Reply: TypeAlias = transition_pb2.StepReply


def kind_of(call: Call) -> type[FunctionProgram | GeneratorProgram | CoroutineProgram]:
    """Return what kind of program a function is.

    Raises:
        TypeError: It is an async generator.
    """
    if inspect.isasyncgenfunction(call):
        message = (
            f"{call!r} is an async generator: a step program awaits its effects in an `async def`, or yields them in a plain "
            "generator, but not both"
        )
        raise TypeError(message)
    if inspect.iscoroutinefunction(call):
        return CoroutineProgram
    return GeneratorProgram if inspect.isgeneratorfunction(call) else FunctionProgram


class FunctionProgram:
    """A function that is asked at every turn."""

    def __init__(self, call: Call) -> None:
        self._call: Final = call
        self._history: Final[list[transition_pb2.StepTurn]] = []

    @property
    def turn(self) -> int:
        """The turn that it is to answer next."""
        return len(self._history)

    def answer(self, poll: Poll, task: TaskContext) -> Reply:
        """Answer a poll."""
        self._history.extend(poll.history)
        ctx = StepContext(poll, task)
        ctx.begin_turn(poll.turn, poll.results, tuple(self._history))
        try:
            reply = answer_of(self._call(ctx), ctx)
        except Goto as goto:
            reply = answer_of(goto.ending, ctx)
        except EffectFailed as failed:
            raise failed_with(failed, poll.turn) from failed
        self._history.append(transition_pb2.StepTurn(results=poll.results, reply=reply))
        return reply

    def close(self) -> None:
        """There is nothing that goes on."""


class _Replayed:
    """What generators and coroutines have in common: where they stopped, and what they were told."""

    def __init__(self, call: Call) -> None:
        self._call: Final = call
        self._waits: Final = Waits()
        self._ctx: StepContext | None = None
        self.turn = 0

    def _polled(self, poll: Poll, task: TaskContext) -> StepContext:
        """Return the program's one context."""
        if self._ctx is None:
            self._ctx = StepContext(poll, task)
        self._ctx.polled(poll, task)
        return self._ctx

    def _begin(
        self, ctx: StepContext, results: Sequence[transition_pb2.EffectResult]
    ) -> Told | None:
        """Begin a turn. Returns what the program is told, or None if that is not enough to go on."""
        ctx.begin_turn(self.turn, results)
        self._waits.tell(results)
        return self._waits.ready()

    def _end(self, ctx: StepContext, transition: transition_pb2.Transition) -> Reply:
        """End a turn."""
        update = ctx.take_update()
        is_terminal = transition.HasField("goto") or transition.HasField("done")
        if update is not None and not is_terminal:
            refuse_what_was_read(update, ctx.read, self.turn)
        self.turn += 1
        return transition_pb2.StepReply(
            transition=transition, update=update, holds_turns=not is_terminal
        )

    def _check(self, recorded: Reply, replayed: Reply) -> None:
        found = difference(recorded.transition, replayed.transition)
        if found is None:
            return
        before, now = found
        turn = self.turn - 1
        message = (
            f"turn {turn} was replayed, because this process does not hold the program any more, and asks for something else: "
            f"recorded is [{before}], now it is [{now}]. A program must ask for the same again if it is told the same: keep "
            "time, chance and the outside world in tools and effects, and let runs that are under way end on the old version"
        )
        details = {"turn": str(turn), "recorded": before, "replayed": now}
        raise Failed(STEP_DIVERGED, message, retryable=False, details=details)


class GeneratorProgram(_Replayed):
    """A generator that yields what it asks for, and is sent what came of it."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._generator: Generator[object, object, object] | None = None
        self._asked: _Yielded | None = None

    def answer(self, poll: Poll, task: TaskContext) -> Reply:
        """Answer a poll."""
        ctx = self._polled(poll, task)
        if self._generator is None:
            self._generator = self._call(ctx)  # type: ignore[assignment]  # `kind_of` has looked
        try:
            for past in poll.history:
                self._check(past.reply, self._take_turn(ctx, past.results))
            return self._take_turn(ctx, poll.results)
        except EffectFailed as failed:
            raise failed_with(failed, self.turn) from failed

    def close(self) -> None:
        """Give it up."""
        if self._generator is not None:
            self._generator.close()

    def _take_turn(self, ctx: StepContext, results: Sequence[transition_pb2.EffectResult]) -> Reply:
        told = self._begin(ctx, results)
        if told is None and self.turn:
            return self._end(ctx, wait_on())
        return self._end(ctx, self._go_on(told))

    def _go_on(self, told: Told | None) -> transition_pb2.Transition:
        while True:
            try:
                asked = self._next(told)
            except StopIteration as stop:
                return ending_of(stop.value)
            except Goto as goto:
                return goto.ending.transition
            self._asked = _asked_by(asked)
            transition = self._waits.ask(self._asked.wait, self.turn)
            if transition is not None:
                return transition
            told = self._waits.ready()

    def _next(self, told: Told | None) -> object:
        assert self._generator is not None, "it was begun"
        if told is None:
            return next(self._generator)
        assert self._asked is not None, "it was asked for before it has ended"
        results = tuple(told.ended[place] for place in told.places)
        try:
            value = self._asked.read(results)
        except Exception as error:  # noqa: BLE001  # what reading raises is for the program to catch, as in an `async def`
            return self._generator.throw(error)
        return self._generator.send(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Yielded:
    """What a generator has yielded: what it waits for, and what it is sent."""

    wait: Pause[Any] | transition_pb2.Transition
    read: Callable[[tuple[transition_pb2.EffectResult, ...]], object]


def _asked_by(asked: object) -> _Yielded:
    match asked:
        case Pause():
            return _Yielded(wait=asked, read=asked.read)
        case Effect():
            return _Yielded(wait=await_effects(asked), read=lambda results: asked.read(results[0]))
        case transition_pb2.Transition() if asked.WhichOneof("kind") not in {"goto", "done", None}:
            return _Yielded(wait=asked, read=list)
        case _:
            wanted = "a generator yields what it asks for: an effect, ctx.all(…), ctx.spawn(…), a transition; it returns its end"
            raise not_an_answer(wanted, asked)


@dataclass(frozen=True, slots=True)
class _Stopped:
    """A coroutine that waits for something of ours."""

    asked: Any


@dataclass(frozen=True, slots=True)
class _Returned:
    """A coroutine that has ended."""

    transition: transition_pb2.Transition


class CoroutineProgram(_Replayed):
    """An `async def` that awaits what it asks for."""

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self._coroutine: Coroutine[object, object, object] | None = None

    async def answer(self, poll: Poll, task: TaskContext) -> Reply:
        """Answer a poll."""
        ctx = self._polled(poll, task)
        if self._coroutine is None:
            self._coroutine = self._call(ctx)  # type: ignore[assignment]  # `kind_of` has looked
        try:
            for past in poll.history:
                self._check(past.reply, await self._take_turn(ctx, past.results))
            return await self._take_turn(ctx, poll.results)
        except EffectFailed as failed:
            raise failed_with(failed, self.turn) from failed

    def close(self) -> None:
        """Give it up."""
        if self._coroutine is not None:
            self._coroutine.close()

    async def _take_turn(
        self, ctx: StepContext, results: Sequence[transition_pb2.EffectResult]
    ) -> Reply:
        told = self._begin(ctx, results)
        if told is None and self.turn:
            return self._end(ctx, wait_on())
        while True:
            assert self._coroutine is not None, "it was begun"
            stopped = await _Advance(self._coroutine, told)
            if isinstance(stopped, _Returned):
                return self._end(ctx, stopped.transition)
            transition = self._waits.ask(stopped.asked, self.turn)
            if transition is not None:
                return self._end(ctx, transition)
            # What was left of earlier turns has ended already, or nothing was asked for: that takes no turn.
            told = self._waits.ready()


class _Advance:
    """Awaiting it lets a coroutine go on until it asks for something of ours, or ends.

    What else it awaits (a stored value, a lock) goes to the event loop as if this were not in between.
    """

    __slots__ = ("_coroutine", "_told")

    def __init__(self, coroutine: Coroutine[object, object, object], told: Told | None) -> None:
        self._coroutine: Final = coroutine
        self._told: Final = told

    def __await__(self) -> Generator[object, object, _Stopped | _Returned]:
        given: object = self._told
        error: BaseException | None = None
        while True:
            try:
                with inside_of_a_program():
                    asked = (
                        self._coroutine.send(given)
                        if error is None
                        else self._coroutine.throw(error)
                    )
            except StopIteration as stop:
                return _Returned(ending_of(stop.value))
            except Goto as goto:
                return _Returned(goto.ending.transition)
            if Waits.is_ours(asked):
                return _Stopped(asked)
            given, error = None, None
            try:
                given = yield asked
            except BaseException as raised:  # noqa: BLE001  # a cancel goes to where the program waits, like everything else
                error = raised
