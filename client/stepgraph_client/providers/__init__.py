"""Ready-made models for an Executor: providers' APIs, called as graphs ask for them.

    from stepgraph_client import Executor
    from stepgraph_client.providers import OpenAIModels

Rules: a provider's own package is imported when its models are made, and only then; each is an extra of its own.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from stepgraph_client.providers.endpoint import Endpoint
from stepgraph_client.providers.provider import Provider

__all__ = ["Endpoint", "Provider"]

#: Where the names are that need a package of their provider's.
_LAZY: Final[dict[str, str]] = {}


def __getattr__(name: str) -> object:
    """Import what needs a provider's package when it is asked for.

    Raises:
        AttributeError: There is nothing of this name.
        ImportError: The package is not installed; the message says what to install.
    """
    if name not in _LAZY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_LAZY[name]), name)
