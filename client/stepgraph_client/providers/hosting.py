"""Models of a provider, declared on an Executor.

Rules: a graph asks for a name, a provider answers to another; which is which is said once, here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from stepgraph.v1.llm_pb2 import LlmRequest, LlmResponse
    from stepgraph_client.executor import Executor
    from stepgraph_client.providers.provider import Provider
    from stepgraph_client.task_context import TaskContext

#: The provider's name for each name that graphs use; a list has names that are the same for both.
Models: TypeAlias = Mapping[str, str] | Sequence[str]


def named(models: Models) -> dict[str, str]:
    """Return models as a mapping from what graphs ask for to the provider's name.

    A name that ends in `*` stands for all that begin so. With an empty provider's name, as in a list, each is asked for by the
    name that the graph uses.

    Raises:
        ValueError: There is none, or one is empty.
        TypeError: It is a single text.
    """
    if isinstance(models, str):
        message = f"models are a list or a mapping; write [{models!r}]"
        raise TypeError(message)
    if isinstance(models, Mapping):
        given = dict(models)
    else:
        given = {name: "" if name.endswith("*") else name for name in models}
    if not given or not all(given):
        message = 'name at least one model, such as ["gpt-5-mini"] or {"clever": "gpt-5"}'
        raise ValueError(message)
    return given


def host(provider: Provider, models: Models, executor: Executor) -> None:
    """Answer calls of these models with a provider.

    Raises:
        ValueError: No model is named, or the executor has one of this name already.
    """
    for name, real_name in named(models).items():
        _host_one(provider, name, real_name, executor)


def _host_one(provider: Provider, name: str, real_name: str, executor: Executor) -> None:
    @executor.model(name)
    async def answer(request: LlmRequest, ctx: TaskContext) -> LlmResponse:
        return await provider.reply(real_name or request.model, request, ctx)
