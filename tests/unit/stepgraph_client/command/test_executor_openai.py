"""`stepgraph executor openai`: from what is typed to the models that are hosted."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from stepgraph_client.command import executor_openai as module
from stepgraph_client.command.executor import executor_group
from stepgraph_client.providers.openai_dialect import Dialect
from stepgraph_client.providers.openai_models import OpenAIModels


@pytest.fixture
def connected(monkeypatch):
    """What was connected to, in place of connecting."""
    found = []

    def host(settings, hosting, connect):
        found.append(connect(hosting.endpoint()))

    monkeypatch.setattr(module, "host_until_told", host)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    for name in ("OPENAI_BASE_URL", "OPENAI_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return found


def typed(*words):
    return CliRunner().invoke(executor_group, ["openai", *words])


@pytest.mark.parametrize(
    ("words", "address", "dialect"),
    [
        ((), "https://api.openai.com/v1", Dialect(max_tokens_field="max_completion_tokens")),
        (("--base-url", "http://h/v1"), "http://h/v1", Dialect()),
        (
            ("--max-tokens-field", "max_tokens", "--send-thinking", "--no-stream-usage"),
            "https://api.openai.com/v1",
            Dialect(sends_thinking=True, asks_for_usage=False),
        ),
    ],
    ids=["usual", "another server", "everything"],
)
def test_what_is_typed_is_how_the_api_is_spoken(connected, words, address, dialect):
    """The base URL says how the API is spoken, and what is typed wins."""
    result = typed("--model", "m", *words)
    assert (result.exit_code, result.output) == (0, "")
    (models,) = connected
    assert isinstance(models, OpenAIModels)
    assert (models.address, models._dialect) == (address, dialect)


def test_a_model_must_be_named(connected):
    """Without a model nothing is hosted."""
    result = typed()
    assert result.exit_code == 2
    assert "name a model" in result.stderr


def test_without_the_package_it_says_what_to_install(monkeypatch):
    """Where the package `openai` is missing, the command says how to install it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-0123456789")
    monkeypatch.delitem(sys.modules, "stepgraph_client.providers.openai_models")
    monkeypatch.setitem(sys.modules, "openai", None)
    result = typed("--model", "m")
    assert result.exit_code == 2
    assert "pip install 'stepgraph[openai]'" in " ".join(result.stderr.split())
