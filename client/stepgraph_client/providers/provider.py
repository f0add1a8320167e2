"""What a provider is: an API that answers model calls, behind the one shape that an executor hosts.

Rules: a provider turns an LlmRequest into its API's words and the answer back into an LlmResponse. It does nothing a second
time: whether a call is tried again is the graph's retry policy to say, and the SDK under it is told not to. Of what goes
wrong it raises `Failed`, made by `Failures`, so that all providers say the same thing by the same code. A refusal and a reply
that was cut off are no failures here: they are stop reasons, and the server makes of them what the graph says.

How the pieces fit, for who writes one:

    Endpoint       where the API is, its key, and the limits of the connection
    Failures       a status, a lost connection, a broken stream or a malformed reply as `Failed`
    contents       the text, picture or document of a block, wherever it is kept
    options        `provider_options`, read and checked
    Reply          the pieces of a reply as they come: shown as progress, and in the end the LlmResponse
    hosting        a provider's models, declared on an Executor
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1.llm_pb2 import LlmRequest, LlmResponse
    from stepgraph_client.task_context import TaskContext


class Provider(Protocol):
    """An API that answers model calls. Used on one event loop."""

    async def reply(self, model: str, request: LlmRequest, ctx: TaskContext) -> LlmResponse:
        """Ask a model and return its reply.

        While it comes its pieces are shown with `ctx`, if `request.streaming` wants them. Cancelled, it ends the HTTP request
        at once.

        Args:
            model: The model as the provider names it. `request.model` is the name that the graph uses.
            request: What is asked. It is not changed.
            ctx: The attempt.

        Raises:
            Failed: There is no reply; see `Failures` for the codes.
        """
        ...

    async def known_models(self) -> Sequence[str]:
        """Return the names of the models that the endpoint says it has.

        Raises:
            Failed: It can't be asked, or does not answer with a list.
        """
        ...

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        ...
