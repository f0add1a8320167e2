"""Models behind an API that is compatible with OpenAI's chat completions, on the package `openai`.

    executor = Executor("127.0.0.1:7233")
    OpenAIModels(client=AsyncOpenAI(), models={"clever": "gpt-5"}).host_on(executor)
    executor.run_forever()

Rules: one call is one HTTP request: the package's own retries are off, because the graph's policy decides. A reply that is
streamed is complete when the server has said why the model stopped; a stream that ends without that has broken off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import httpx2
import openai

from stepgraph.v1.llm_pb2 import LLM_STOP_REASON_REFUSED
from stepgraph_client.providers import hosting
from stepgraph_client.providers.endpoint import address_of
from stepgraph_client.providers.failures import Failures
from stepgraph_client.providers.openai_answers import (
    CONTENT_FILTER,
    Answers,
    BrokenOff,
    MalformedAnswer,
    listed_in,
)
from stepgraph_client.providers.openai_dialect import dialect_of
from stepgraph_client.providers.openai_failures import OpenAIFailures, refusal_in
from stepgraph_client.providers.openai_requests import body_of
from stepgraph_client.providers.reply import Reply
from stepgraph_client.providers.tool_names import ToolNames

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from openai.types.chat import ChatCompletionChunk

    from stepgraph.v1.llm_pb2 import LlmRequest, LlmResponse
    from stepgraph_client.executor import Executor
    from stepgraph_client.providers.endpoint import Endpoint
    from stepgraph_client.providers.hosting import Models
    from stepgraph_client.providers.openai_dialect import Dialect
    from stepgraph_client.providers.openai_messages import Entry
    from stepgraph_client.task_context import TaskContext

#: What a server without keys is sent: the package wants one.
NO_KEY: Final = "none"
#: Models that are read of an endpoint's list.
MAX_LISTED: Final = 10_000


class OpenAIModels:
    """Models of one endpoint. A `Provider`; `host_on` declares them on an executor."""

    def __init__(
        self,
        *,
        client: openai.AsyncOpenAI,
        models: Models = (),
        dialect: Dialect | None = None,
        key_name: str = "the client's api_key",
    ) -> None:
        """Make them of a client of yours; nothing is connected yet.

        Args:
            client: Where the models are, with key, timeouts and limits. It is closed by `close`.
            models: Which are hosted: a list of their names, or the provider's name for each name that graphs use. A name that
                ends in `*` stands for all that begin so.
            dialect: How the server differs from others. None: as it is known for the base URL.
            key_name: How the key was given, for whoever has to correct it.
        """
        base_url = str(client.base_url)
        self.address: Final = address_of(base_url)
        self._client: Final = client.with_options(max_retries=0)
        self._models: Final = models
        self._dialect: Final = dialect or dialect_of(base_url)
        self._failures: Final = Failures(
            address=self.address,
            key_name=key_name,
            secrets=_Keys(self._client),
        )
        self._raised: Final = OpenAIFailures(self._failures, _silence_of(client))

    @classmethod
    def at(
        cls, endpoint: Endpoint, *, models: Models = (), dialect: Dialect | None = None
    ) -> OpenAIModels:
        """Make models of an endpoint, with a client of their own."""
        timeout = httpx2.Timeout(endpoint.connect_timeout_s, read=endpoint.silence_timeout_s)
        limits = httpx2.Limits(
            max_connections=endpoint.max_connections,
            max_keepalive_connections=endpoint.max_connections,
        )
        client = openai.AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key or NO_KEY,
            timeout=timeout,
            http_client=openai.DefaultAsyncHttpx2Client(timeout=timeout, limits=limits),
        )
        return cls(client=client, models=models, dialect=dialect, key_name=endpoint.key_name)

    def host_on(self, executor: Executor) -> None:
        """Answer calls of these models on an executor.

        Raises:
            ValueError: No model was named, or the executor has one of this name already.
        """
        hosting.host(self, self._models, executor)

    # ---- as a Provider ---------------------------------------------------------------------------

    async def reply(self, model: str, request: LlmRequest, ctx: TaskContext) -> LlmResponse:
        """Ask a model and return its reply. See `Provider`."""
        names = ToolNames.of(request)
        body = await body_of(request, ctx, names, self._dialect)
        reply = Reply(ctx, streaming=request.streaming)
        answers = Answers(reply, names, streaming=request.streaming)
        ask = self._ask_streaming if request.streaming else self._ask
        try:
            await ask(model, body, answers, reply)
            return _whole(reply, answers)
        except MalformedAnswer as error:
            raise self._failures.malformed(str(error), reply.usage) from error
        except BrokenOff as error:
            raise self._failures.broken(str(error), reply.usage) from error

    async def known_models(self) -> Sequence[str]:
        """Return the names that the endpoint lists. See `Provider`."""
        try:
            page = await self._client.models.list()
        except openai.OpenAIError as error:
            raise self._raised.of(error, "") from error
        except _UNREADABLE as error:
            why = f"its list of models is none: {error}"
            raise self._failures.malformed(why) from error
        try:
            return listed_in(_plain(page))[:MAX_LISTED]
        except MalformedAnswer as error:
            why = f"its list of models is none: {error}"
            raise self._failures.malformed(why) from error

    async def close(self) -> None:
        """Close the client. Idempotent."""
        await self._client.close()

    # ---- one request -----------------------------------------------------------------------------

    async def _ask(self, model: str, body: Entry, answers: Answers, reply: Reply) -> None:
        try:
            completion: object = await self._client.chat.completions.create(
                model=model, messages=_messages(body), stream=False, extra_body=body
            )
        except openai.OpenAIError as error:
            self._refused_or_raise(error, model, answers, reply)
            return
        except _UNREADABLE as error:
            message = f"it can't be read: {error}"
            raise MalformedAnswer(message) from error
        answers.read(_plain(completion))

    async def _ask_streaming(self, model: str, body: Entry, answers: Answers, reply: Reply) -> None:
        try:
            stream = await self._client.chat.completions.create(
                model=model, messages=_messages(body), stream=True, extra_body=body
            )
        except openai.OpenAIError as error:
            self._refused_or_raise(error, model, answers, reply)
            return
        async with stream:
            # However this block is left, the connection is closed with it: a cancel ends the request.
            async for chunk in self._chunks(stream, model, reply):
                before = reply.size_bytes
                answers.read(chunk)
                if reply.size_bytes == before:
                    # A chunk without a piece: some servers send them while the model thinks in silence.
                    reply.alive()

    async def _chunks(
        self, stream: openai.AsyncStream[ChatCompletionChunk], model: str, reply: Reply
    ) -> AsyncIterator[object]:
        kind = stream.response.headers.get("content-type", "")
        if kind and "event-stream" not in kind:
            message = f"expected a stream of events, and it is {kind}"
            raise MalformedAnswer(message)
        chunks = aiter(stream)
        while True:
            try:
                chunk: object = await anext(chunks)
            except StopAsyncIteration:
                return
            except openai.OpenAIError as error:
                raise self._raised.in_stream(error, model, reply.usage) from error
            except _UNREADABLE as error:
                message = f"an event can't be read: {error}"
                raise MalformedAnswer(message) from error
            yield _plain(chunk)

    def _refused_or_raise(
        self, error: openai.OpenAIError, model: str, answers: Answers, reply: Reply
    ) -> None:
        """Make a refusal of the request into a reply that refuses; raise all else."""
        refusal = refusal_in(error) if isinstance(error, openai.APIStatusError) else None
        if refusal is None:
            raise self._raised.of(error, model) from error
        reply.text(self._failures.hidden(refusal))
        reply.stop_reason = LLM_STOP_REASON_REFUSED
        answers.finish_reason = CONTENT_FILTER


class _Keys:
    """The keys that a client has now: some are made anew, by a function, every few minutes."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client: Final = client

    def __iter__(self) -> Iterator[str]:
        yield from (self._client.api_key, self._client.api_key.strip())
        yield self._client.admin_api_key or ""


#: What the package raises where an answer is no JSON, or JSON of a shape that it did not think of.
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, RecursionError)


def _whole(reply: Reply, answers: Answers) -> LlmResponse:
    answers.end()
    try:
        return reply.response()
    except ValueError as error:
        raise MalformedAnswer(str(error)) from error


def _plain(answer: object) -> object:
    """Return an answer as plain JSON: the package's objects are made without a look at what is in them."""
    return answer.to_dict(warnings=False) if isinstance(answer, openai.BaseModel) else answer


def _messages(body: Entry) -> Any:  # noqa: ANN401  # JSON; the package has a type for each kind of message
    return cast("Any", body["messages"])


def _silence_of(client: openai.AsyncOpenAI) -> float:
    timeout = client.timeout
    read = timeout.read if isinstance(timeout, httpx2.Timeout) else timeout
    return float("inf") if read is None else float(read)
