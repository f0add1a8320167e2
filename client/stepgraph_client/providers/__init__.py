"""Ready-made models for an Executor: providers' APIs, called as graphs ask for them.

    from stepgraph_client import Executor
    from stepgraph_client.providers import OpenAIModels

Rules: a provider's own package is imported when its models are made, and only then; each is an extra of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from stepgraph_client.providers.endpoint import Endpoint
from stepgraph_client.providers.openai_dialect import Dialect
from stepgraph_client.providers.provider import Provider

if TYPE_CHECKING:
    from stepgraph_client.providers.anthropic_models import AnthropicModels
    from stepgraph_client.providers.openai_models import OpenAIModels

__all__ = ["AnthropicModels", "Dialect", "Endpoint", "OpenAIModels", "Provider"]

#: Where the names are that need a package of their provider's, and the package, which is an extra of the same name.
_LAZY: Final = {
    "AnthropicModels": ("stepgraph_client.providers.anthropic_models", "anthropic"),
    "OpenAIModels": ("stepgraph_client.providers.openai_models", "openai"),
}


def __getattr__(name: str) -> object:
    """Import what needs a provider's package when it is asked for.

    Raises:
        AttributeError: There is nothing of this name.
        ImportError: The package is not installed; the message says what to install.
    """
    if name not in _LAZY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module, package = _LAZY[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        message = f"{name} needs the package {package!r}; install it with `pip install 'stepgraph[{package}]'`"
        raise ImportError(message, name=error.name) from error
