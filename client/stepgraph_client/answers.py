"""Answers to questions: `client.answer(question.interrupt_id, proceed())`.

Rules: one function per variant of `InterruptAnswer`, by its name in the schema. The server checks whether an answer fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1.failure_pb2 import FAILURE_CATEGORY_BUSINESS, Failure
from stepgraph.v1.interrupt_pb2 import InterruptAnswer
from stepgraph_client.json_text import JsonLike, to_json_text
from stepgraph_client.values import to_value

if TYPE_CHECKING:
    from collections.abc import Mapping


def proceed() -> InterruptAnswer:
    """Go on."""
    return InterruptAnswer(proceed=InterruptAnswer.Proceed())


def proceed_with(
    variables: Mapping[str, object] | None = None,
    *,
    tool_args: JsonLike | None = None,
    message: str = "",
) -> InterruptAnswer:
    """Go on, with variables to write, other arguments for the tool, or a message to the model."""
    return InterruptAnswer(
        proceed_with=InterruptAnswer.ProceedWith(
            variables={name: to_value(value) for name, value in (variables or {}).items()},
            tool_args=None if tool_args is None else to_json_text(tool_args),
            message=message,
        )
    )


def revise(feedback: str) -> InterruptAnswer:
    """Not like this; the feedback says why."""
    return InterruptAnswer(revise=InterruptAnswer.Revise(feedback=feedback))


def choose(option_id: str) -> InterruptAnswer:
    """Go on, with this choice."""
    return InterruptAnswer(choose=InterruptAnswer.Choose(option_id=option_id))


def abort(reason: str = "") -> InterruptAnswer:
    """Stop."""
    return InterruptAnswer(abort=InterruptAnswer.Abort(reason=reason))


def reply(value: object) -> InterruptAnswer:
    """Give a step program the value that it waits for."""
    return InterruptAnswer(reply=InterruptAnswer.Reply(value=to_value(value)))


def failed(code: str, message: str = "") -> InterruptAnswer:
    """Tell a step program that what it waits for failed."""
    failure = Failure(code=code, message=message, category=FAILURE_CATEGORY_BUSINESS)
    return InterruptAnswer(failed=InterruptAnswer.Failed(failure=failure))
