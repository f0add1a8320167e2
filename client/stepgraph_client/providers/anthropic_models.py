"""Models behind Anthropic's messages API, on the package `anthropic`.

    executor = Executor("127.0.0.1:7233")
    AnthropicModels(client=AsyncAnthropic(), models=["claude-*"]).host_on(executor)
    executor.run_forever()

Rules: every call is one HTTP request; nothing is tried again here. All replies are streamed, also those whose deltas nobody wants: only a
stream has the arguments of calls as the model wrote them, may take as long as it takes, and ends at once when it is
cancelled. Events are read as they come, not through the SDK's objects, which leave out the pings that say that a silent model is
still at work.
"""

from __future__ import annotations

import json
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, Final

import anthropic
import httpx2

from stepgraph.v1.llm_pb2 import LLM_STOP_REASON_REFUSED
from stepgraph_client.providers import hosting
from stepgraph_client.providers.anthropic_blocks import Names
from stepgraph_client.providers.anthropic_call_ids import CallIds
from stepgraph_client.providers.anthropic_reply import ReplyEvents
from stepgraph_client.providers.anthropic_request import Terms, body_of
from stepgraph_client.providers.endpoint import address_of
from stepgraph_client.providers.failures import Answer, Failures
from stepgraph_client.providers.reply import Reply
from stepgraph_client.providers.tool_names import ToolNames

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from stepgraph.v1.llm_pb2 import LlmRequest, LlmResponse, Usage
    from stepgraph_client.executor import Executor
    from stepgraph_client.providers.anthropic_request import Body
    from stepgraph_client.providers.endpoint import Endpoint
    from stepgraph_client.providers.hosting import Models
    from stepgraph_client.task_context import TaskContext
    from stepgraph_client.task_errors import Failed

BASE_URL: Final = "https://api.anthropic.com"
#: How many models are asked for; no account has as many.
MAX_MODELS: Final = 1000

#: How the API says that a filter stopped it; its kind is that of any request that is wrong.
_BLOCKED: Final = "blocked by content filtering policy"
#: How the API, and llama.cpp, say that a request is longer than the model's context.
_TOO_LONG: Final = ("prompt is too long", "exceeds the available context size")
_NAMELESS: Final = "a model in the list has no id"
#: What `create` wants by name; all else goes into the body as it is.
_ARGUMENTS: Final = frozenset({"model", "max_tokens", "messages", "stream"})
#: An error in the middle of a stream has no status of its own: the one that it would have had.
_STATUS_OF: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Blocked(Exception):
    """A filter of the provider stopped the reply. It stays in this file: the reply is one that was refused."""


class AnthropicModels:
    """Models of one endpoint. A `Provider`; `host_on` declares them on an executor."""

    def __init__(
        self,
        *,
        client: anthropic.AsyncAnthropic,
        models: Models = (),
        terms: Terms | None = None,
        key_name: str = "the client's api_key",
    ) -> None:
        """Make them of a client of yours; nothing is connected yet.

        Args:
            client: Where the models are, with key, timeouts and limits. It is closed by `close`.
            models: Which are hosted: a list of their names, or the provider's name for each name that graphs use. A name that
                ends in `*` stands for all that begin so.
            terms: What holds for all requests: the version of the API, and the limit where a request has none.
            key_name: How the key was given, for whoever has to correct it.
        """
        self.address: Final = address_of(str(client.base_url))
        self._client: Final = client.with_options(max_retries=0)
        self._models: Final = models
        self._terms: Final = terms or Terms()
        self._failures: Final = Failures(
            address=self.address,
            key_name=key_name,
            secrets=(client.api_key or "", client.auth_token or ""),
        )

    @classmethod
    def at(
        cls, endpoint: Endpoint, *, models: Models = (), terms: Terms | None = None
    ) -> AnthropicModels:
        """Make models of an endpoint, with a client of their own. A base URL may end in `/v1`, or not."""
        timeout = httpx2.Timeout(endpoint.connect_timeout_s, read=endpoint.silence_timeout_s)
        limits = httpx2.Limits(
            max_connections=endpoint.max_connections,
            max_keepalive_connections=endpoint.max_connections,
        )
        keyless: Mapping[str, Any] = {"Authorization": anthropic.omit}
        client = anthropic.AsyncAnthropic(
            # Never None: the package would look for a key in the environment and in files.
            api_key=endpoint.api_key,
            base_url=endpoint.base_url.rstrip("/").removesuffix("/v1"),
            timeout=timeout,
            default_headers=None if endpoint.api_key else keyless,
            http_client=anthropic.DefaultAsyncHttpxClient(timeout=timeout, limits=limits),
        )
        return cls(client=client, models=models, terms=terms, key_name=endpoint.key_name)

    def host_on(self, executor: Executor) -> None:
        """Answer calls of these models on an executor.

        Raises:
            ValueError: No model was named, or the executor has one of this name already.
        """
        hosting.host(self, self._models, executor)

    # ---- as a Provider ---------------------------------------------------------------------------

    async def reply(self, model: str, request: LlmRequest, ctx: TaskContext) -> LlmResponse:
        """Ask a model and return its reply. See `Provider`."""
        names = Names(tools=ToolNames.of(request), calls=CallIds(request.messages))
        body = await body_of(model, request, names, ctx, self._terms)
        reply = Reply(ctx, streaming=request.streaming)
        events = ReplyEvents(reply, names.tools)
        try:
            async with AsyncExitStack() as stack:
                response = await self._open(stack, model, body)
                sent = await stack.enter_async_context(aclosing(self._events(response, reply)))
                async for name, data in sent:
                    if name == "error":
                        raise self._reported(data, response, model, reply)
                    events.take(json.loads(data))
                    if name == "ping" and request.streaming:
                        ctx.alive()
            if not events.has_ended:
                raise self._endless(reply)
            return reply.response()
        except Blocked as blocked:
            return _refusal(reply, self._failures.hidden(str(blocked)))
        except (ValueError, RecursionError) as error:
            raise self._failures.malformed(str(error), reply.usage) from error

    async def known_models(self) -> Sequence[str]:
        """Return the names of the models that the endpoint says it has, at most MAX_MODELS. See `Provider`."""
        try:
            page = await self._client.models.list(limit=MAX_MODELS)
            names = [model.id for model in page.data]
        except anthropic.APIError as error:
            raise self._refused(error, "") from error
        except (ValueError, TypeError, AttributeError) as error:
            # The SDK trusts what comes: what has another shape ends somewhere in its objects.
            why = f"it is no list of models: {error}"
            raise self._failures.malformed(why) from error
        if not all(isinstance(name, str) for name in names):
            raise self._failures.malformed(_NAMELESS)
        return names

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    # ---- one request -----------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack, model: str, body: Body) -> httpx2.Response:
        """Return the answer to a request, with its stream still to be read; the stack closes it."""
        rest = {name: each for name, each in body.items() if name not in _ARGUMENTS}
        request = self._client.messages.with_streaming_response.create(
            model=body["model"],
            max_tokens=body["max_tokens"],
            messages=body["messages"],
            stream=True,
            extra_headers={"anthropic-version": self._terms.api_version},
            extra_body=rest,
        )
        try:
            return (await stack.enter_async_context(request)).http_response
        except anthropic.APIError as error:
            raise self._refused(error, model) from error

    async def _events(
        self, response: httpx2.Response, reply: Reply
    ) -> AsyncGenerator[tuple[str | None, str], None]:
        """Yield the name and the data of each event."""
        try:
            async for sent in anthropic.AsyncStream.raw_events(response):
                yield sent.event, sent.data
        except httpx2.ReadTimeout as error:
            raise self._failures.silent(self._silence_s, reply.usage) from error
        except httpx2.HTTPError as error:
            raise self._failures.broken(str(error), reply.usage) from error

    @property
    def _silence_s(self) -> float:
        timeout = self._client.timeout
        read = timeout.read if isinstance(timeout, httpx2.Timeout) else timeout
        return float("inf") if read is None else float(read)

    def _refused(self, error: anthropic.APIError, model: str) -> Failed | Blocked:
        """Return what to raise for a request that got no reply."""
        cause = error.__cause__
        if isinstance(cause, httpx2.ReadTimeout):
            return self._failures.silent(self._silence_s)
        if isinstance(error, anthropic.APIConnectionError):
            return self._failures.unreachable(str(cause) or type(cause).__name__)
        if not isinstance(error, anthropic.APIStatusError):
            return self._failures.malformed(error.message)
        message = error.api_message or str(error.body or "")
        answer = _answer(error.status_code, error.response, message, str(error.type or ""), model)
        return self._raised(answer)

    def _raised(self, answer: Answer, usage: Usage | None = None) -> Failed | Blocked:
        if _BLOCKED in answer.message.lower():
            return Blocked(answer.message)
        return self._failures.answered(answer, usage)

    def _endless(self, reply: Reply) -> Failed:
        """Return the failure for a stream that was closed in order, but before the reply's end."""
        if reply.usage is None:
            return self._failures.malformed("it has none of the events of a reply")
        return self._failures.broken("it has no end", reply.usage)

    def _reported(
        self, data: str, response: httpx2.Response, model: str, reply: Reply
    ) -> Failed | Blocked:
        """Return what to raise for an error in the middle of a stream."""
        try:
            error = json.loads(data)["error"]
            kind, message = str(error["type"]), str(error["message"])
        except (ValueError, RecursionError, LookupError, TypeError):
            return self._failures.broken(f"the stream says: {data}", reply.usage)
        # A kind that is not in the table is trouble of the provider's own, as `api_error` is.
        answer = _answer(_STATUS_OF.get(kind, 500), response, message, kind, model)
        return self._raised(answer, reply.usage)


def _refusal(reply: Reply, why: str) -> LlmResponse:
    reply.text(why, key="refusal")
    reply.stop_reason = LLM_STOP_REASON_REFUSED
    return reply.response()


def _answer(status: int, response: httpx2.Response, message: str, kind: str, model: str) -> Answer:
    # These are `invalid_request_error`: only the words tell them from other requests that are wrong.
    words = message.lower()
    return Answer(
        status=status,
        headers={name.lower(): value for name, value in response.headers.items()},
        message=message,
        code=kind,
        model=model,
        is_quota="credit balance is too low" in words,
        is_too_long=any(each in words for each in _TOO_LONG),
    )
