"""What functions return, as results of tasks.

Rules: a function returns what is natural in Python; messages of the schema are taken as they are. What has no meaning is a
failure RESULT_INVALID that says what was expected, and it is not tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from stepgraph.v1 import conversation_pb2, llm_pb2, task_pb2, transition_pb2
from stepgraph.v1.value_pb2 import Value
from stepgraph_client.task_errors import RESULT_INVALID, Failed, ToolError
from stepgraph_client.values import to_value

if TYPE_CHECKING:
    from collections.abc import Sequence


def value_of(returned: object) -> Value | None:
    """Return text as text, bytes as bytes, None as nothing, and everything else as exact JSON.

    Raises:
        Failed: RESULT_INVALID; it has no JSON: NaN, a cycle, an object of an unknown class.
    """
    if returned is None:
        return None
    try:
        return to_value(returned)
    except (ValueError, TypeError) as error:
        message = f"what was returned has no JSON: {error}"
        raise Failed(RESULT_INVALID, message, retryable=False) from error


def llm_result(returned: object) -> task_pb2.TaskResult:
    """Return a reply: an LlmResponse, a Message, or the text of one. Ids of calls may be empty.

    Raises:
        Failed: RESULT_INVALID.
    """
    if isinstance(returned, llm_pb2.LlmResponse):
        return task_pb2.TaskResult(llm=returned)
    if isinstance(returned, conversation_pb2.Message):
        result = task_pb2.TaskResult(llm=llm_pb2.LlmResponse(message=returned))
    elif isinstance(returned, str):
        message = conversation_pb2.Message(content=[text_block(returned)])
        result = task_pb2.TaskResult(llm=llm_pb2.LlmResponse(message=message))
    else:
        return _refuse("an LlmResponse, a Message or text", returned)
    result.llm.message.role = conversation_pb2.ROLE_ASSISTANT
    return result


def tool_result(returned: object) -> task_pb2.TaskResult:
    """Return a tool's result: a ToolResult, content blocks, or a value.

    Raises:
        Failed: RESULT_INVALID.
    """
    if isinstance(returned, transition_pb2.ToolResult):
        return task_pb2.TaskResult(tool=returned)
    blocks = _blocks(returned)
    if blocks is not None:
        return task_pb2.TaskResult(tool=transition_pb2.ToolResult(content=blocks))
    return task_pb2.TaskResult(tool=transition_pb2.ToolResult(output=value_of(returned)))


def tool_error(error: ToolError) -> task_pb2.TaskResult:
    """Return trouble that the model should know about."""
    result = transition_pb2.ToolResult(output=Value(text=str(error)), is_error=True)
    return task_pb2.TaskResult(tool=result)


def agent_result(returned: object) -> task_pb2.TaskResult:
    """Return an agent's result: a TaskResult.Agent with its usage, or a value.

    Raises:
        Failed: RESULT_INVALID.
    """
    if isinstance(returned, task_pb2.TaskResult.Agent):
        return task_pb2.TaskResult(agent=returned)
    return task_pb2.TaskResult(agent=task_pb2.TaskResult.Agent(output=value_of(returned)))


def condition_result(returned: object) -> task_pb2.TaskResult:
    """Return whether a condition holds. Only a bool: that an empty list is false must not decide a path.

    Raises:
        Failed: RESULT_INVALID.
    """
    if not isinstance(returned, bool):
        return _refuse("True or False", returned)
    return task_pb2.TaskResult(condition=task_pb2.TaskResult.Condition(holds=returned))


def effect_result(returned: object) -> task_pb2.TaskResult:
    """Return a custom kind's result: a value.

    Raises:
        Failed: RESULT_INVALID.
    """
    return task_pb2.TaskResult(effect=task_pb2.TaskResult.Effect(output=value_of(returned)))


def usage_of(result: task_pb2.TaskResult) -> llm_pb2.Usage | None:
    """Return what a result says that it cost; None if it says nothing."""
    match result.WhichOneof("kind"):
        case "llm":
            return result.llm.usage if result.llm.HasField("usage") else None
        case "agent":
            return result.agent.usage if result.agent.HasField("usage") else None
        case _:
            return None


def text_block(text: str) -> conversation_pb2.ContentBlock:
    """Return a text as a block of a message."""
    return conversation_pb2.ContentBlock(text=conversation_pb2.TextBlock(text=text))


def _blocks(returned: object) -> Sequence[conversation_pb2.ContentBlock] | None:
    if isinstance(returned, conversation_pb2.ContentBlock):
        return [returned]
    if not isinstance(returned, (list, tuple)) or not returned:
        return None
    blocks = [each for each in returned if isinstance(each, conversation_pb2.ContentBlock)]
    return blocks if len(blocks) == len(returned) else None


def _refuse(expected: str, returned: object) -> NoReturn:
    message = f"expected {expected} to be returned, not {type(returned).__name__}"
    raise Failed(RESULT_INVALID, message, retryable=False)
