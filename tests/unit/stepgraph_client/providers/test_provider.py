"""What a provider is."""

from __future__ import annotations

import inspect
import sys

import pytest

from stepgraph_client import providers
from stepgraph_client.providers.provider import Provider


def test_a_provider_replies_lists_and_closes():
    """A provider has three verbs, all to be awaited."""
    verbs = {name for name in vars(Provider) if not name.startswith("_")}
    assert verbs == {"reply", "known_models", "close"}
    assert all(inspect.iscoroutinefunction(getattr(Provider, name)) for name in verbs)


@pytest.mark.parametrize("name", ["OpenAIModels", "AnthropicModels"])
def test_models_are_imported_when_they_are_asked_for(name):
    """Each provider's models are found in the package, and are a provider."""
    models = getattr(providers, name)
    assert all(callable(getattr(models, verb)) for verb in ("reply", "known_models", "close"))


@pytest.mark.parametrize(
    ("name", "package"), [("OpenAIModels", "openai"), ("AnthropicModels", "anthropic")]
)
def test_a_package_that_is_missing_is_named_with_what_to_install(name, package, monkeypatch):
    """Without the provider's package the import says which extra has it."""
    monkeypatch.delitem(sys.modules, f"stepgraph_client.providers.{package}_models", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'stepgraph\[{package}\]'"):
        getattr(providers, name)


def test_what_is_not_there_is_an_attribute_error():
    """A name that nobody has is refused as in every module."""
    with pytest.raises(AttributeError, match="has no attribute 'NoModels'"):
        _ = providers.NoModels
