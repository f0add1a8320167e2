"""What is different in a fork: `client.fork(run_id, sequence=7, changes=[another_result("2/price/t0/e0", 12)])`.

Rules: one function per variant of `ForkChange`. The server checks whether a change fits what is outstanding there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1.run_service_pb2 import ForkChange
from stepgraph.v1.state_pb2 import StateUpdate
from stepgraph.v1.task_pb2 import TaskResult
from stepgraph_client.requests import as_message
from stepgraph_client.values import to_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1.conversation_pb2 import Message
    from stepgraph.v1.interrupt_pb2 import InterruptAnswer


def another_answer(activation_id: str, answer: InterruptAnswer) -> ForkChange:
    """Answer the question that an activation, such as `4/approve`, asks at the fork: `another_answer("4/approve", revise("no"))`."""
    return ForkChange(answer=ForkChange.Answer(activation_id=activation_id, answer=answer))


def another_result(task_id: str, result: object, *, is_error: bool = False) -> ForkChange:
    """Give a tool's task that is outstanding at the fork a result, which no executor then makes.

    Args:
        task_id: The task, relative to the run, as its TaskScheduled names it: `2/price/t0/e0`.
        result: What the tool gave, as for `to_value`; or a `TaskResult`, for a task of another kind.
        is_error: The tool said that it went wrong.
    """
    if not isinstance(result, TaskResult):
        made = TaskResult()
        made.tool.output.CopyFrom(to_value(result))
        made.tool.is_error = is_error
        result = made
    return ForkChange(result=ForkChange.Result(task_id=task_id, result=result))


def another_state(
    variables: Mapping[str, object] | None = None,
    *,
    delete: Sequence[str] = (),
    messages: Sequence[Message | str] = (),
    paradigm: str | None = None,
) -> ForkChange:
    """Change the state at the fork: variables to set and to delete, messages to append, another paradigm."""
    update = StateUpdate(
        variables={name: to_value(value) for name, value in (variables or {}).items()},
        delete_variables=delete,
        messages=[as_message(each) for each in messages],
        paradigm=paradigm,
    )
    return ForkChange(patch=ForkChange.Patch(update=update))
