"""`stepgraph executor anthropic`: from what is typed to the models that are hosted."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from stepgraph_client.command import executor_anthropic as module
from stepgraph_client.command.executor import executor_group
from stepgraph_client.providers.anthropic_models import AnthropicModels
from stepgraph_client.providers.anthropic_request import Terms

KEY = "sk-ant-canary-0123456789"


@pytest.fixture
def connected(monkeypatch):
    """What was connected to, in place of connecting."""
    found = []

    def host(settings, hosting, connect):
        found.append(connect(hosting.endpoint()))

    monkeypatch.setattr(module, "host_until_told", host)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"):
        monkeypatch.delenv(name, raising=False)
    return found


def typed(*words):
    return CliRunner().invoke(executor_group, ["anthropic", *words])


@pytest.mark.parametrize(
    ("words", "address", "terms"),
    [
        ((), "https://api.anthropic.com", Terms()),
        (("--base-url", "http://h/v1"), "http://h", Terms()),
        (
            ("--max-tokens", "500", "--api-version", "2023-06-01"),
            "https://api.anthropic.com",
            Terms(max_tokens=500, api_version="2023-06-01"),
        ),
    ],
    ids=["usual", "another server", "everything"],
)
def test_what_is_typed_is_how_the_api_is_spoken(connected, words, address, terms):
    """The base URL, the version of the API and the limit of tokens are those that are typed."""
    result = typed("--model", "claude-x", *words)
    assert (result.exit_code, result.output) == (0, "")
    (models,) = connected
    assert isinstance(models, AnthropicModels)
    assert (models.address, models._terms) == (address, terms)


def test_a_limit_is_above_nothing(connected):
    """A limit of no tokens is refused before anything is connected."""
    result = typed("--model", "m", "--max-tokens", "0")
    assert result.exit_code == 2
    assert "max-tokens" in result.stderr
    assert connected == []


def test_a_model_is_named_by_the_environment(connected, monkeypatch):
    """Without --model the usual variable says which models there are; without both it is told what to type."""
    assert "put it into ANTHROPIC_MODEL" in " ".join(typed().stderr.split())
    monkeypatch.setenv("ANTHROPIC_MODEL", "claude-x")
    assert typed().exit_code == 0


def test_without_a_key_it_says_where_it_is_looked_for(connected, monkeypatch):
    """Away from this machine a key is needed, and the message names its variable."""
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    result = typed("--model", "m")
    assert result.exit_code != 0
    assert connected == []


def test_without_the_package_it_says_what_to_install(monkeypatch):
    """Where the package `anthropic` is missing, the command says how to install it."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.delitem(sys.modules, "stepgraph_client.providers.anthropic_models")
    monkeypatch.setitem(sys.modules, "anthropic", None)
    result = typed("--model", "m")
    assert result.exit_code == 2
    assert "pip install 'stepgraph[anthropic]'" in " ".join(result.stderr.split())
