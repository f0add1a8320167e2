"""What a step program is given: what it works on, what has ended, and how it asks for more.

Rules: one context goes with a program from its first turn to its last, and shows the turn that runs. What a program reads here
must be the same when it is replayed, so what it has read of the state it can't write until its last turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, NoReturn, TypeVar

from stepgraph.v1 import state_pb2, value_pb2
from stepgraph_client import effects, transitions
from stepgraph_client.pauses import AnyOf, Pause
from stepgraph_client.requests import as_message
from stepgraph_client.values import from_value, read_as, to_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stepgraph.v1 import conversation_pb2, transition_pb2
    from stepgraph_client.effects import Effect, EffectFailed
    from stepgraph_client.pauses import Place
    from stepgraph_client.task_context import TaskContext

F = TypeVar("F")
R = TypeVar("R")
T = TypeVar("T")

#: What `read` notes when the conversation, or which variables there are, is looked at; no variable can have such a name.
CONVERSATION: Final = "the conversation"
ALL_VARIABLES: Final = "all variables"


class _Same(Generic[F]):
    """A function as it is, as in `staticmethod`, through which type checkers see the first of several signatures only."""

    __slots__ = ("_function",)

    def __init__(self, function: F) -> None:
        self._function: Final = function

    def __get__(self, instance: object, owner: type[object] | None = None) -> F:
        return self._function


class StepContext:
    """One run of a step program."""

    def __init__(self, poll: transition_pb2.StepContext, task: TaskContext) -> None:
        """Made by the executor, for the poll that a program begins, or is replayed, with."""
        self._poll = poll
        self._task = task
        self._turn = 0
        self._results: Sequence[transition_pb2.EffectResult] = ()
        self._history: Sequence[transition_pb2.StepTurn] = ()
        self._update = state_pb2.StateUpdate()
        #: What of the state was looked at.
        self.read: Final[set[str]] = set()

    # ---- what it works on ------------------------------------------------------------------------

    @property
    def run_id(self) -> str:
        """The run."""
        return self._poll.run_id

    @property
    def node_id(self) -> str:
        """The node."""
        return self._poll.node_id

    @property
    def program(self) -> str:
        """The name that the program was asked for by; one function may be several programs."""
        return self._poll.program

    @property
    def input(self) -> object:
        """The input as Python has it; the same at every turn."""
        return from_value(self._poll.input)

    @property
    def input_value(self) -> value_pb2.Value:
        """The input as it is, for instance because it is stored: `await ctx.resolve(ctx.input_value)`."""
        return self._poll.input

    def input_as(self, kind: type[T]) -> T:
        """Return the input as a pydantic model, a dataclass, or any type that pydantic can check.

        Raises:
            pydantic.ValidationError: It does not fit.
        """
        return read_as(self._poll.input, kind)

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the node asks for with `variables`, as they are at this turn; what is not set is not there.

        The program's own updates show from the next turn on.
        """
        return _Variables(self._poll, self.read)

    @property
    def conversation(self) -> Sequence[conversation_pb2.Message]:
        """The run's conversation, if the node asks for it with `include_conversation`; else empty."""
        self.read.add(CONVERSATION)
        return self._poll.conversation

    # ---- the turn, for programs that are functions -----------------------------------------------

    @property
    def turn(self) -> int:
        """The turn, from 0."""
        return self._turn

    @property
    def results(self) -> Sequence[transition_pb2.EffectResult]:
        """What has ended since the last turn, in request order; `effects.outcome(result)` reads one."""
        return self._results

    @property
    def history(self) -> Sequence[transition_pb2.StepTurn]:
        """The turns before, oldest first, of a function; other programs have lived through them."""
        return self._history

    # ---- the attempt -----------------------------------------------------------------------------

    @property
    def task(self) -> TaskContext:
        """The attempt that runs: its limits, its trace, whether it is cancelled."""
        return self._task

    async def content(self, stored: value_pb2.StoredValue) -> bytes:
        """Return the content of a stored value; see `TaskContext.content`. The same in a replay, so it may be awaited."""
        return await self._task.content(stored)

    async def resolve(self, value: value_pb2.Value) -> value_pb2.Value:
        """Return a value with its content inside, if it is stored; else as it is."""
        return await self._task.resolve(value)

    async def text_of(self, block: conversation_pb2.TextBlock) -> str:
        """Return the text of a block of a message, wherever it is."""
        return await self._task.text_of(block)

    # ---- changing the state ----------------------------------------------------------------------

    def update(
        self,
        *,
        variables: Mapping[str, object] | None = None,
        delete_variables: Iterable[str] = (),
        messages: Iterable[str | conversation_pb2.Message] = (),
        decision: state_pb2.GraphDecision | None = None,
        paradigm: str | None = None,
        should_terminate: bool = False,
    ) -> None:
        """Change the state, together with what this turn answers; several updates of one turn are one.

        A text among `messages` is a user's message. Spawned work has no state: there the server refuses it.
        """
        update = self._update
        for name, value in (variables or {}).items():
            if name in update.delete_variables:
                update.delete_variables.remove(name)
            update.variables[name].CopyFrom(to_value(value))
        for name in delete_variables:
            update.variables.pop(name, None)
            if name not in update.delete_variables:
                update.delete_variables.append(name)
        update.messages.extend(as_message(each) for each in messages)
        if decision is not None:
            update.decision.CopyFrom(decision)
        if paradigm is not None:
            update.paradigm = paradigm
        update.should_terminate = update.should_terminate or should_terminate

    # ---- asking for more -------------------------------------------------------------------------

    llm = staticmethod(effects.llm)
    tool = staticmethod(effects.tool)
    delegate = staticmethod(effects.delegate)
    graph = staticmethod(effects.graph)
    effect = staticmethod(effects.custom)
    sleep = staticmethod(effects.sleep)
    spawn = _Same(transitions.spawn)
    ask = _Same(transitions.ask)
    external = staticmethod(transitions.external)
    signal = staticmethod(transitions.signal)

    def all(self, *wanted: Effect[R]) -> Pause[list[R]]:
        """Have effects done at once, in one turn; the values are in their order, and the first failure is raised."""
        pause = effects.await_effects(*wanted)
        return Pause(
            transition=pause.transition,
            read=lambda results: [
                one.read(result) for one, result in zip(wanted, results, strict=True)
            ],
        )

    def settled(self, *wanted: Effect[R]) -> Pause[list[R | EffectFailed]]:
        """Do what `all` does, with an EffectFailed in the place of what failed."""
        pause = effects.await_effects(*wanted)
        return Pause(
            transition=pause.transition,
            read=lambda results: [
                transitions.settled(result, one.read)
                for one, result in zip(wanted, results, strict=True)
            ],
        )

    def each(self, *wanted: Effect[R]) -> Each[R]:
        """Have effects done at once, and take them as they end: `async for done in ctx.each(a, b)`.

        Every wake is a turn. What is left when the loop is left goes on, until the program ends.
        """
        return Each(wanted)

    def goto(self, target: str, carry: object = None) -> NoReturn:
        """End the program here, and go on at another node, over a handoff edge; `carry` is that node's input."""
        raise transitions.Goto(transitions.goto(target, carry))

    # ---- for who drives the program --------------------------------------------------------------

    def begin_turn(
        self,
        turn: int,
        results: Sequence[transition_pb2.EffectResult],
        history: Sequence[transition_pb2.StepTurn] = (),
    ) -> None:
        """Show another turn."""
        self._turn, self._results, self._history = turn, results, history

    def polled(self, poll: transition_pb2.StepContext, task: TaskContext) -> None:
        """Take what the next poll brings along."""
        self._poll, self._task = poll, task

    def take_update(self) -> state_pb2.StateUpdate | None:
        """Return how this turn changes the state, once; None if not at all."""
        taken, self._update = self._update, state_pb2.StateUpdate()
        return taken if taken.ByteSize() else None


class Ended(Generic[R]):
    """One effect of several that has ended.

    Attributes:
        index: Its position among them.
        effect: What it was.
        result: What was told of it.
    """

    __slots__ = ("effect", "index", "result")

    def __init__(self, index: int, effect: Effect[R], result: transition_pb2.EffectResult) -> None:
        self.index: Final = index
        self.effect: Final = effect
        self.result: Final = result

    @property
    def value(self) -> R:
        """What awaiting it would give. Raises EffectFailed."""
        return self.effect.read(self.result)


class Each(Generic[R]):
    """Effects that go on at once, as they end; made by `ctx.each`."""

    def __init__(self, wanted: tuple[Effect[R], ...]) -> None:
        self._wanted: Final = wanted
        self._open: dict[Place, int] | None = None
        self._ended: Final[list[Ended[R]]] = []

    def __aiter__(self) -> Each[R]:
        return self

    async def __anext__(self) -> Ended[R]:
        if not self._ended:
            await self._more()
        if not self._ended:
            raise StopAsyncIteration
        return self._ended.pop(0)

    async def _more(self) -> None:
        if self._open:
            told = await AnyOf(transition=None, places=frozenset(self._open))
        elif self._open is None and self._wanted:
            asked = effects.await_effects(*self._wanted, each=True)
            told = await AnyOf(transition=asked.transition, places=None)
            self._open = {place: index for index, place in enumerate(told.places)}
        else:
            return
        for place in sorted(told.ended):
            index = self._open.pop(place)
            self._ended.append(Ended(index, self._wanted[index], told.ended[place]))


class _Variables(Mapping[str, object]):
    """The variables of a poll, that notes which were looked at."""

    __slots__ = ("_poll", "_read")

    def __init__(self, poll: transition_pb2.StepContext, read: set[str]) -> None:
        self._poll: Final = poll
        self._read: Final = read

    def __getitem__(self, name: str) -> object:
        self._read.add(name)
        # A map of protobuf makes what it is asked for.
        if name not in self._poll.variables:
            there = ", ".join(sorted(self._poll.variables)) or "none"
            message = f"{name!r} is not set, or the node does not ask for it with `variables`; there are {there}"
            raise KeyError(message)
        return from_value(self._poll.variables[name])

    def __iter__(self) -> Iterator[str]:
        self._read.add(ALL_VARIABLES)
        return iter(sorted(self._poll.variables))

    def __len__(self) -> int:
        self._read.add(ALL_VARIABLES)
        return len(self._poll.variables)
