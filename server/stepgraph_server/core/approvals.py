"""What an answered question leaves in the state.

Rules: `_approval`, `_approval_feedback` and `_choice`, and their copies per node, are written here and nowhere else; an
answer deletes those of them that it does not carry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import conversation_pb2, value_pb2
from stepgraph_server.core.values import copy

if TYPE_CHECKING:
    from stepgraph.v1 import interrupt_pb2

APPROVAL: Final = "_approval"
FEEDBACK: Final = "_approval_feedback"
CHOICE: Final = "_choice"

Write = tuple[str, "value_pb2.Value | None"]


def said_no(answer: interrupt_pb2.InterruptAnswer | None) -> bool:
    """Whether the action must not run: the answer is Revise or Abort."""
    return answer is not None and answer.WhichOneof("kind") in ("revise", "abort")


def no_text(answer: interrupt_pb2.InterruptAnswer) -> str:
    """Return what a person said who said no."""
    return answer.abort.reason if answer.HasField("abort") else answer.revise.feedback


def refusal_text(answer: interrupt_pb2.InterruptAnswer) -> str:
    """Return what a model reads as the result of a call that a person refused."""
    said = no_text(answer)
    return (
        f"A person did not approve this call: {said}"
        if said
        else "A person did not approve this call."
    )


def writes(node_id: str, answer: interrupt_pb2.InterruptAnswer) -> tuple[Write, ...]:
    """Return what the node writes when it completes, in order: the answer, then the variables that came with it."""
    feedback: str | None = None
    choice: str | None = None
    match answer.WhichOneof("kind"):
        case "revise":
            word, feedback = "revise", answer.revise.feedback
        case "abort":
            word, feedback = "abort", answer.abort.reason
        case "choose":
            word, choice = "choose", answer.choose.option_id
        case _:
            word = "proceed"
    variables = (
        sorted(answer.proceed_with.variables.items()) if answer.HasField("proceed_with") else []
    )
    return (
        *_named(node_id, APPROVAL, word),
        *_named(node_id, FEEDBACK, feedback),
        *_named(node_id, CHOICE, choice),
        *((name, copy(value)) for name, value in variables),
    )


def proceed_writes(node_id: str) -> tuple[Write, ...]:
    """Return what the answer Proceed would write."""
    return (
        *_named(node_id, APPROVAL, "proceed"),
        *_named(node_id, FEEDBACK, None),
        *_named(node_id, CHOICE, None),
    )


def _named(node_id: str, name: str, text: str | None) -> tuple[Write, Write]:
    value = None if text is None else value_pb2.Value(text=text)
    return (name, value), (f"{name}.{node_id}", value)


def message(answer: interrupt_pb2.InterruptAnswer | None) -> conversation_pb2.Message | None:
    """Return the user message that came with the answer, or None."""
    if answer is None or not answer.proceed_with.message:
        return None
    block = conversation_pb2.ContentBlock(
        text=conversation_pb2.TextBlock(text=answer.proceed_with.message)
    )
    return conversation_pb2.Message(role=conversation_pb2.ROLE_USER, content=[block])
