"""What programs return, as replies to polls.

Rules: as in `task_results`: what is natural in Python, and messages of the schema as they are. What has no meaning is a failure
that says what was expected, and is not tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import failure_pb2, transition_pb2
from stepgraph_client.effects import Effect, await_effects
from stepgraph_client.pauses import Pause
from stepgraph_client.step_context import ALL_VARIABLES, CONVERSATION
from stepgraph_client.task_errors import RESULT_INVALID, Failed
from stepgraph_client.task_results import value_of
from stepgraph_client.transitions import Ending

if TYPE_CHECKING:
    from stepgraph.v1 import state_pb2
    from stepgraph_client.effects import EffectFailed
    from stepgraph_client.step_context import StepContext
    from stepgraph_client.task_errors import Category

STEP_NOT_REPLAYABLE: Final = "STEP_NOT_REPLAYABLE"

_CATEGORIES: Final[dict[failure_pb2.FailureCategory.ValueType, Category]] = {
    failure_pb2.FAILURE_CATEGORY_BUSINESS: "business",
    failure_pb2.FAILURE_CATEGORY_CANCELLED: "business",
    failure_pb2.FAILURE_CATEGORY_LIMIT: "limit",
}


def answer_of(returned: object, ctx: StepContext) -> transition_pb2.StepReply:
    """Return what a function has returned as its reply, with the updates that it asked of its context.

    Raises:
        Failed: RESULT_INVALID.
    """
    if isinstance(returned, transition_pb2.StepReply):
        reply = transition_pb2.StepReply()
        reply.CopyFrom(returned)
    else:
        reply = transition_pb2.StepReply(transition=_transition_of(returned))
    update = ctx.take_update()
    if update is not None:
        reply.update.MergeFrom(update)
    reply.holds_turns = reply.transition.WhichOneof("kind") not in {"goto", "done", None}
    return reply


def _transition_of(returned: object) -> transition_pb2.Transition:
    match returned:
        case transition_pb2.Transition():
            return returned
        case Pause() | Ending():
            return returned.transition
        case Effect():
            return await_effects(returned).transition
        case _:
            wanted = (
                "a step program that is a function returns a transition: an effect, ctx.all(…), ctx.spawn(…), ctx.ask(…), "
                "goto(…) or done(…)"
            )
            raise not_an_answer(wanted, returned)


def ending_of(returned: object) -> transition_pb2.Transition:
    """Return what a generator or an `async def` has returned as its end: the value of the node, unless it is goto or done.

    Raises:
        Failed: RESULT_INVALID; it does not end, or has no JSON.
    """
    match returned:
        case Ending():
            return returned.transition
        case transition_pb2.Transition() if returned.HasField("goto") or returned.HasField("done"):
            return returned
        case transition_pb2.Transition() | transition_pb2.StepReply() | Pause() | Effect():
            wanted = "a program that awaits or yields returns its value, goto(…) or done(…); await or yield this instead"
            raise not_an_answer(wanted, returned)
        case _:
            done = transition_pb2.Transition.Done(value=value_of(returned))
            return transition_pb2.Transition(done=done)


def not_an_answer(wanted: str, found: object) -> Failed:
    """Return the failure for what can't be an answer."""
    return Failed(RESULT_INVALID, f"{wanted}; found {type(found).__name__}", retryable=False)


def failed_with(failed: EffectFailed, turn: int) -> Failed:
    """Return the failure of a program that does not catch that of an effect: the same code, which trying again won't change."""
    failure = failed.failure
    return Failed(
        failure.code or "EFFECT_FAILED",
        f"{failed.label}: {failure.message}" if failed.label else failure.message,
        retryable=False,
        category=_CATEGORIES.get(failure.category, "technical"),
        details={**failure.details, "effect": failed.label, "turn": str(turn)},
    )


def refuse_what_was_read(update: state_pb2.StateUpdate, read: set[str], turn: int) -> None:
    """Refuse to change what a program has looked at, while it goes on: replayed, it would see the change where it looked before it.

    Raises:
        Failed: STEP_NOT_REPLAYABLE.
    """
    written = {*update.variables, *update.delete_variables}
    bad = sorted(written if ALL_VARIABLES in read else written & read)
    if update.messages and CONVERSATION in read:
        bad.append(CONVERSATION)
    if not bad:
        return
    message = (
        f"turn {turn} changes {', '.join(bad)}, which the program has read before, and it goes on. Replayed by another process it "
        "would read what it has written itself. Change it with the last turn, or have it given with the node's input template, "
        "which stays the same"
    )
    raise Failed(STEP_NOT_REPLAYABLE, message, retryable=False, details={"turn": str(turn)})
