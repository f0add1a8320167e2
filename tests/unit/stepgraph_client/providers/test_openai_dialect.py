"""How servers that speak OpenAI's API differ from each other."""

from __future__ import annotations

import pytest

from stepgraph_client.providers.openai_dialect import Dialect, dialect_of


@pytest.mark.parametrize(
    ("url", "field"),
    [
        ("https://api.openai.com/v1/", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai", "max_completion_tokens"),
        ("https://notapi.openai.com.example.com/v1", "max_tokens"),
        ("http://127.0.0.1:8080/v1", "max_tokens"),
    ],
)
def test_openais_own_models_want_another_name_for_the_limit(url, field):
    """OpenAI's own models want `max_completion_tokens`; all others know `max_tokens`."""
    assert dialect_of(url) == Dialect(max_tokens_field=field)
