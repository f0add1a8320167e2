"""Models of a provider, declared on an Executor."""

from __future__ import annotations

import pytest

from stepgraph.v1.llm_pb2 import LlmRequest, LlmResponse
from stepgraph.v1.task_pb2 import TaskInput
from stepgraph_client.executor import Executor
from stepgraph_client.providers.hosting import host, named
from tests.support.provider_context import Attempt


class Parrot:
    """Says which model it was asked for."""

    async def reply(self, model, request, ctx):
        return LlmResponse(model=f"{request.model} is {model}")


async def ask(executor, name):
    given = TaskInput(llm=LlmRequest(model=name))
    function = executor._functions.find(given)
    if function is None:
        return None
    return (await function.bind(given, Attempt().ctx)()).model


async def test_a_name_of_the_graph_leads_to_the_providers_name():
    """What a graph asks for is answered by the model that it stands for; nothing else is."""
    executor = Executor()
    host(Parrot(), {"clever": "big-1", "quick": "small-1"}, executor)
    assert await ask(executor, "clever") == "clever is big-1"
    assert await ask(executor, "quick") == "quick is small-1"
    assert await ask(executor, "other") is None


async def test_a_list_has_names_that_are_the_same_for_both():
    """Names of a list go to the provider as they are, and a prefix lets all through that begin so."""
    executor = Executor()
    host(Parrot(), ["big-1", "small-*"], executor)
    assert await ask(executor, "big-1") == "big-1 is big-1"
    assert await ask(executor, "small-7") == "small-7 is small-7"


async def test_one_model_may_answer_to_all_names():
    """A prefix may lead to one model."""
    executor = Executor()
    host(Parrot(), {"*": "big-1"}, executor)
    assert await ask(executor, "anything") == "anything is big-1"


@pytest.mark.parametrize("models", [[], {}, [""], {"": "x"}])
def test_no_model_is_refused_with_an_example(models):
    """Without a model there is nothing to host; the message shows how one is named."""
    with pytest.raises(ValueError, match="name at least one model, such as"):
        named(models)


def test_a_text_is_no_list():
    """A single text is refused before each of its letters becomes a model."""
    with pytest.raises(TypeError, match=r"write \['gpt'\]"):
        named("gpt")


def test_a_name_is_hosted_once():
    """The same name twice on one executor is refused."""
    executor = Executor()
    host(Parrot(), ["a"], executor)
    with pytest.raises(ValueError, match="there is a function for llm a already"):
        host(Parrot(), ["a"], executor)
