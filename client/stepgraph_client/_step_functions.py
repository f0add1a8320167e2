"""The step programs of an executor: which one a poll is for, begun or taken up again, and answered.

Rules: functions and generators answer in a thread, since they may block; an `async def` answers on the loop. What becomes of a
program after its answer is decided on the loop, whatever it is written as.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import task_pb2
from stepgraph_client.step_programs import CoroutineProgram, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph.v1 import transition_pb2
    from stepgraph_client._step_holding import HeldPrograms, Lease
    from stepgraph_client.step_programs import Call, FunctionProgram, GeneratorProgram
    from stepgraph_client.task_context import TaskContext


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """What came of a poll, on its way back to the loop."""

    program: FunctionProgram | GeneratorProgram | CoroutineProgram
    lease: Lease
    reply: transition_pb2.StepReply | BaseException


class StepFunction:
    """One step program of an executor."""

    def __init__(self, call: Call, held: HeldPrograms) -> None:
        """Raises TypeError: It can't be a step program."""
        self._call: Final = call
        self._kind: Final = kind_of(call)
        self._held: Final = held
        self.is_async: Final = self._kind is CoroutineProgram

    def bind(self, given: task_pb2.TaskInput, ctx: TaskContext) -> Callable[[], object]:
        """Return the call that answers a poll. Raises TurnsNotHeld."""
        held, lease = self._held.take(ctx.task_id, given.step)
        # A program that is held was made here: its kind is that of the function.
        program = self._kind(self._call) if held is None else held
        if isinstance(program, CoroutineProgram):
            return partial(_answer_async, program, lease, given.step, ctx)
        return partial(_answer, program, lease, given.step, ctx)

    def to_result(self, returned: object) -> task_pb2.TaskResult:
        """Return a poll's result, and keep the program if it goes on. Raises what it has raised."""
        assert isinstance(returned, _Answered), "this is what `bind` calls"
        reply = returned.reply
        if isinstance(reply, BaseException):
            self._held.give_up(returned.lease, returned.program)
            raise reply
        if reply.holds_turns:
            self._held.keep(returned.lease, returned.program, reply.ByteSize())
        else:
            self._held.give_up(returned.lease, returned.program)
        return task_pb2.TaskResult(step=reply)


def _answer(
    program: FunctionProgram | GeneratorProgram,
    lease: Lease,
    poll: transition_pb2.StepContext,
    ctx: TaskContext,
) -> _Answered:
    reply: transition_pb2.StepReply | BaseException
    try:
        reply = program.answer(poll, ctx)
    except BaseException as error:  # noqa: BLE001  # it is raised again on the loop, where the program is given up
        reply = error
    return _Answered(program=program, lease=lease, reply=reply)


async def _answer_async(
    program: CoroutineProgram, lease: Lease, poll: transition_pb2.StepContext, ctx: TaskContext
) -> _Answered:
    reply: transition_pb2.StepReply | BaseException
    try:
        reply = await program.answer(poll, ctx)
    except BaseException as error:  # noqa: BLE001  # as above; a cancel too, since the program has seen it
        reply = error
    return _Answered(program=program, lease=lease, reply=reply)
