"""What a provider is."""

from __future__ import annotations

import inspect

from stepgraph_client.providers.provider import Provider


def test_a_provider_replies_lists_and_closes():
    """A provider has three verbs, all to be awaited."""
    verbs = {name for name in vars(Provider) if not name.startswith("_")}
    assert verbs == {"reply", "known_models", "close"}
    assert all(inspect.iscoroutinefunction(getattr(Provider, name)) for name in verbs)
