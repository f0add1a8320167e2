"""Answers of an OpenAI-compatible API, as far as they are read, and what they add to a reply.

Rules: servers that speak this API differ in what they leave out, so everything may be absent, and `null` is absent. What is
there must have the type that the API says: else the reply is malformed, and the error has the path.

What is told apart by a call's `index` by some servers is told apart by its `id` by others: a call is new if its index is, or if
it comes with another id than the one before at that index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from stepgraph.v1.llm_pb2 import (
    LLM_STOP_REASON_END,
    LLM_STOP_REASON_MAX_TOKENS,
    LLM_STOP_REASON_OTHER,
    LLM_STOP_REASON_REFUSED,
    LLM_STOP_REASON_TOOL_CALLS,
    LlmStopReason,
    Usage,
)
from stepgraph_client.providers.echoes import packed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph_client.providers.reply import Reply
    from stepgraph_client.providers.tool_names import ToolNames

#: The name under which `provider_data` is packed.
PROVIDER: Final = "openai"

CONTENT_FILTER: Final = "content_filter"
#: How servers that route to others say that the other one has failed after the reply began.
_ERROR: Final = "error"
_STOP_REASONS: Final[Mapping[str, LlmStopReason.ValueType]] = {
    "stop": LLM_STOP_REASON_END,
    "tool_calls": LLM_STOP_REASON_TOOL_CALLS,
    "function_call": LLM_STOP_REASON_TOOL_CALLS,
    "length": LLM_STOP_REASON_MAX_TOKENS,
    CONTENT_FILTER: LLM_STOP_REASON_REFUSED,
}


class MalformedAnswer(Exception):
    """An answer is not what the API promises; the message says where. It stays among the files of this API."""


class BrokenOff(Exception):
    """An answer began and did not end; the message says how it is known. It stays among the files of this API."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


Text: TypeAlias = Annotated[str, BeforeValidator(lambda given: "" if given is None else given)]
Count: TypeAlias = Annotated[
    int, BeforeValidator(lambda given: 0 if given is None else given), Field(ge=0, lt=2**63)
]


class FunctionPart(_Part):
    """A piece of a call's function."""

    name: Text = ""
    arguments: Text = ""


class CallPart(_Part):
    """A piece of a call, or a whole one. What the API does not know is the provider's own, and is sent back to it."""

    model_config = ConfigDict(extra="allow", strict=True)

    index: int | None = None
    id: Text = ""
    type: Text = ""
    function: FunctionPart | None = None


class MessagePart(_Part):
    """A piece of a message, or a whole one."""

    content: Text = ""
    refusal: Text = ""
    reasoning_content: Text = ""
    reasoning: Text = ""
    tool_calls: list[CallPart] | None = None

    @property
    def thinking(self) -> str:
        """The thought: there is no one name for it."""
        return self.reasoning_content or self.reasoning


class ChoicePart(_Part):
    """A choice; only the first is asked for."""

    index: int | None = None
    delta: MessagePart | None = None
    message: MessagePart | None = None
    finish_reason: Text = ""


class InputDetails(_Part):
    """What was read, in detail."""

    cached_tokens: Count = 0


class OutputDetails(_Part):
    """What was written, in detail."""

    reasoning_tokens: Count = 0


class UsagePart(_Part):
    """What it cost so far."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None

    def to_usage(self) -> Usage:
        """Return it in the schema's words."""
        read, written = self.prompt_tokens_details, self.completion_tokens_details
        return Usage(
            input_tokens=self.prompt_tokens,
            output_tokens=self.completion_tokens,
            cached_input_tokens=read.cached_tokens if read else 0,
            reasoning_tokens=written.reasoning_tokens if written else 0,
        )


class AnswerPart(_Part):
    """A chunk of a stream, or a whole completion."""

    model: Text = ""
    choices: list[ChoicePart] | None = None
    usage: UsagePart | None = None


class ListedModel(_Part):
    """A model that the endpoint has."""

    id: str


class ListPart(_Part):
    """The endpoint's list of models."""

    data: list[ListedModel]


def listed_in(content: object) -> list[str]:
    """Return the names in a list of models.

    Raises:
        MalformedAnswer: It is none.
    """
    try:
        return [each.id for each in ListPart.model_validate(content).data]
    except ValidationError as error:
        raise MalformedAnswer(_first(error)) from error


class Answers:
    """Reads the answers of one call into its reply.

    Attributes:
        finish_reason: Why the model stopped, in the API's words. Empty if it was not said.
    """

    def __init__(self, reply: Reply, names: ToolNames, *, streaming: bool) -> None:
        self._reply: Final = reply
        self._streaming: Final = streaming
        self._names: Final = names
        self._keys: Final[dict[int, tuple[int, str]]] = {}
        self._last_index = -1
        self._has_choice = False
        self.finish_reason = ""

    def read(self, content: object) -> None:
        """Read a chunk or a completion.

        Raises:
            MalformedAnswer: It is not what the API promises.
            Failed: The reply is too large.
        """
        try:
            answer = AnswerPart.model_validate(content)
        except ValidationError as error:
            raise MalformedAnswer(_first(error)) from error
        reply = self._reply
        reply.model = answer.model or reply.model
        if answer.usage is not None:
            reply.usage = answer.usage.to_usage()
        for choice in answer.choices or ():
            if not choice.index:
                self._read_choice(choice)

    def end(self) -> None:
        """Check that nothing is missing, once there is nothing more to read.

        Raises:
            MalformedAnswer: There was no choice.
            BrokenOff: A stream has ended before the server said why the model stopped, or it has said that it failed.
        """
        if self.finish_reason == _ERROR:
            message = "the server says that the model failed"
            raise BrokenOff(message)
        if self.finish_reason:
            return
        if self._streaming:
            message = "it does not say why the model stopped"
            raise BrokenOff(message)
        if not self._has_choice:
            message = "it has no choice"
            raise MalformedAnswer(message)

    def _read_choice(self, choice: ChoicePart) -> None:
        self._has_choice = True
        message = choice.delta or choice.message
        if message is not None:
            self._read_message(message)
        if choice.finish_reason:
            self.finish_reason = choice.finish_reason
            stop = _STOP_REASONS.get(choice.finish_reason, LLM_STOP_REASON_OTHER)
            # A refusal was told before the reply's end, which says only that there is nothing more.
            if self._reply.stop_reason != LLM_STOP_REASON_REFUSED:
                self._reply.stop_reason = stop

    def _read_message(self, message: MessagePart) -> None:
        reply = self._reply
        if message.thinking:
            reply.thinking(message.thinking)
        if message.content:
            reply.text(message.content)
        if message.refusal:
            reply.text(message.refusal)
            reply.stop_reason = LLM_STOP_REASON_REFUSED
        for call in message.tool_calls or ():
            self._read_call(call)

    def _read_call(self, call: CallPart) -> None:
        function = call.function or FunctionPart()
        # What is extra in a piece is the provider's own; the API's newer names for its own are not known here.
        self._reply.call(
            function.arguments,
            key=self._key(call),
            name=self._names.back(function.name),
            provider_id=call.id,
            provider_data=packed(PROVIDER, call.model_extra or {}),
        )

    def _key(self, call: CallPart) -> tuple[int, str]:
        """Return what tells a call from the others of the reply."""
        index = call.index
        if index is None:
            is_new = bool(call.id or (call.function and call.function.name))
            index = self._last_index + 1 if is_new else max(self._last_index, 0)
        key = self._keys.get(index)
        if key is None or (call.id and key[1] and call.id != key[1]):
            key = self._keys[index] = (index, call.id)
        elif call.id and not key[1]:
            pass  # the id comes late: it is still the call that began without one
        self._last_index = max(self._last_index, index)
        return key


def _first(error: ValidationError) -> str:
    """Return what is wrong first, with its path and without what was sent."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(map(str, first["loc"]))
    return f"{path}: {first['msg']}" if path else str(first["msg"])
