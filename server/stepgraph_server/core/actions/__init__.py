"""What each kind of node does, as small step programs: one file per NodeAction.

Rules: an action sees a Poll and answers with a Step. It reads its node's view, never the state's walk; it changes
nothing. A template or expression that fails is a failure of the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core.actions import (
    assign,
    condition_check,
    delegate,
    human_approval,
    llm_infer,
    run_requested_tools,
    sleep,
    subgraph,
    switch_paradigm,
    tool_call,
    wait_signal,
)
from stepgraph_server.core.actions.step import Fail, Poll, Step
from stepgraph_server.core.expressions import ExpressionError
from stepgraph_server.core.failures import failure
from stepgraph_server.core.templates import RenderError
from stepgraph_server.core.values import ValueNotReadable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepgraph.v1 import interrupt_pb2

#: Actions whose end follows from the results of their tasks, so that no event needs to repeat it.
DERIVED: Final = frozenset(
    {
        "llm_infer",
        "tool_call",
        "delegate",
        "human_approval",
        "map",
        "switch_paradigm",
        "run_requested_tools",
        "sleep",
        "step",
        "subgraph",
        "wait_signal",
    }
)

_PROGRAMS: Final[Mapping[str, Callable[[Poll], Step]]] = {
    "llm_infer": llm_infer.poll,
    "tool_call": tool_call.poll,
    "delegate": delegate.poll,
    "human_approval": human_approval.poll,
    "condition_check": condition_check.poll,
    "switch_paradigm": switch_paradigm.poll,
    "run_requested_tools": run_requested_tools.poll,
    "assign": assign.poll,
    "sleep": sleep.poll,
    "subgraph": subgraph.poll,
    "wait_signal": wait_signal.poll,
}


def poll_action(poll: Poll) -> Step:
    """Poll the action of a node."""
    node = poll.activation.node
    try:
        return _PROGRAMS[node.action_kind](poll)
    except (RenderError, ExpressionError, ValueNotReadable) as error:
        # A value without content here stops a template as well as an expression; which, says the node.
        expresses = isinstance(error, ExpressionError) or node.check is not None or node.expressions
        code = (
            "EXPRESSION_FAILED"
            if expresses and not isinstance(error, RenderError)
            else "TEMPLATE_FAILED"
        )
        return Fail(failure=failure(code, f"{node.id}: {error}", source=node.id))


def tool_question(poll: Poll) -> interrupt_pb2.ToolQuestion | Fail | None:
    """Return the call that a node's question is about: of a ToolCall node its call, of any other nothing."""
    if poll.activation.node.action_kind != "tool_call":
        return None
    return tool_call.question(poll)


__all__ = ["DERIVED", "poll_action", "tool_question"]
