"""A step program behind a node, as it is folded: what it was told, what it answered, what it waits for.

Rules: only the `apply_…` functions of `task_facts` and `polling` change it. A finished turn is kept as bytes, in the form in which
it is sent again, so that nothing of a long program is ever serialized twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from stepgraph.v1 import failure_pb2, interrupt_pb2, task_pb2, transition_pb2

if TYPE_CHECKING:
    from stepgraph_server.core.instants import Instant

#: What came of something that a program asked for. A TaskResult without a variant is the end of a sleep.
Ended: TypeAlias = task_pb2.TaskResult | failure_pb2.Failure | interrupt_pb2.InterruptAnswer


class FinishedTurn(NamedTuple):
    """A turn that will never be polled again."""

    #: The EffectResults that the program was polled with.
    results: tuple[bytes, ...]
    #: Its StepReply.
    reply: bytes


class OpenEffect(NamedTuple):
    """An effect that has not ended."""

    effect: transition_pb2.Effect
    #: How many messages the program itself had appended when it asked.
    messages: int


@dataclass(slots=True, kw_only=True)
class StepProgram:
    """A program from its first poll on."""

    #: Finished turns, oldest first.
    turns: list[FinishedTurn] = field(default_factory=list)
    #: Its next turn is polled.
    polling: bool = False
    #: The EffectResults that it is polled with.
    told: tuple[bytes, ...] = ()
    #: What it answered last; None before, and while it is polled.
    transition: transition_pb2.Transition | None = None
    #: When it answered.
    answered_at: Instant | None = None
    #: How many effects of that were started.
    started: int = 0
    #: Effects that have not ended, by turn and position.
    open: dict[tuple[int, int], OpenEffect] = field(default_factory=dict)
    #: EffectResults that it was not told yet, by turn and position.
    fresh: dict[tuple[int, int], bytes] = field(default_factory=dict)
    #: The process that answered last; the next poll prefers it.
    instance: str = ""
    #: That process keeps all finished turns.
    holds: bool = False
    #: Why its poll failed for good.
    failure: failure_pb2.Failure | None = None

    @property
    def turn(self) -> int:
        """The turn that it answered last; -1 before."""
        return len(self.turns) - 1

    def poll(self) -> None:
        """The next turn is polled, with all that has ended and was not told."""
        self.told = tuple([self.fresh[place] for place in sorted(self.fresh)])
        self.fresh = {}
        self.polling = True
        self.transition = None

    def answer(self, reply: transition_pb2.StepReply, at: Instant, messages: int) -> None:
        """The turn is finished. `messages` is how many the program itself has appended, those of this reply included."""
        raw = reply.SerializeToString(deterministic=True)
        self.turns.append(FinishedTurn(self.told, raw))
        self.told = ()
        self.polling = False
        self.transition = reply.transition
        self.answered_at = at
        self.started = 0
        for index, effect in enumerate(reply.transition.await_effects.effects):
            self.open[self.turn, index] = OpenEffect(effect, messages)

    @property
    def is_answered(self) -> bool:
        """Whether the Suspend that it answered last has its answer."""
        return (self.turn, 0) in self.fresh

    def end(self, turn: int, index: int, label: str, ended: Ended) -> None:
        """What it asked for has ended."""
        self.open.pop((turn, index), None)
        self.fresh[turn, index] = effect_result(turn, index, label, ended)

    def forget_holder(self) -> None:
        """An attempt came to nothing, so whoever had it may have forgotten the turns."""
        self.instance, self.holds = "", False

    @property
    def can_go_on(self) -> bool:
        """Whether there is something to do: an effect to start, a next poll, an end. Not asked while it is suspended."""
        if self.polling or self.transition is None:
            return self.failure is not None
        if self.transition.WhichOneof("kind") in ("suspend", "goto", "done"):
            # It opens its question, or goes on with the answer; between these it is not asked. Or it ends.
            return True
        awaited = self.transition.await_effects.effects
        return self.started < len(awaited) or self.wants_poll

    def tell(self, result: transition_pb2.EffectResult) -> None:
        """Spawned work has ended well."""
        self.fresh[result.turn, result.index] = result.SerializeToString(deterministic=True)

    @property
    def wants_poll(self) -> bool:
        """Whether enough of what it awaits has ended, all of it having been started."""
        if self.open and self._is_each:
            return bool(self.fresh)
        return not self.open

    @property
    def _is_each(self) -> bool:
        wake = self.transition.await_effects.wake if self.transition is not None else 0
        return wake == transition_pb2.WAKE_POLICY_EACH


def effect_result(turn: int, index: int, label: str, ended: Ended) -> bytes:
    """Return the serialized EffectResult of what has ended."""
    made = transition_pb2.EffectResult(turn=turn, index=index, label=label)
    if isinstance(ended, failure_pb2.Failure):
        made.failed.failure.CopyFrom(ended)
    elif isinstance(ended, interrupt_pb2.InterruptAnswer):
        if ended.HasField("signals"):
            made.answer.values.extend(ended.signals.payloads)
        elif ended.HasField("failed"):
            made.failed.failure.CopyFrom(ended.failed.failure)
        else:
            made.answer.values.add().CopyFrom(ended.reply.value)
    else:
        _show_result(made, ended)
    return made.SerializeToString(deterministic=True)


def _show_result(made: transition_pb2.EffectResult, ended: task_pb2.TaskResult) -> None:
    match ended.WhichOneof("kind"):
        case "llm":
            made.llm.response.CopyFrom(ended.llm)
        case "tool":
            made.tool.result.CopyFrom(ended.tool)
        case "agent":
            made.agent.output.CopyFrom(ended.agent.output)
            if ended.agent.HasField("usage"):
                made.agent.usage.CopyFrom(ended.agent.usage)
        case "graph":
            made.graph.run_id = ended.graph.run_id
            if ended.graph.HasField("output"):
                made.graph.output.CopyFrom(ended.graph.output)
        case "effect":
            made.custom.output.CopyFrom(ended.effect.output)
        case _:
            # What has no result of its own is a sleep.
            made.slept.SetInParent()


__all__ = ["Ended", "FinishedTurn", "OpenEffect", "StepProgram", "effect_result"]
