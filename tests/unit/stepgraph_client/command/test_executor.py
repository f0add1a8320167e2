"""`stepgraph executor …`: host models without a line of code."""

from __future__ import annotations

from click.testing import CliRunner

from stepgraph_client.command.executor import executor_group


def test_every_provider_is_a_verb():
    """Each provider has a verb, and all of them take the same options for hosting."""
    assert sorted(executor_group.commands) == ["anthropic", "openai"]
    for name in executor_group.commands:
        result = CliRunner().invoke(executor_group, [name, "--help"])
        assert result.exit_code == 0
        for option in ("--model", "--base-url", "--api-key-env", "--max-in-flight", "--label"):
            assert option in result.stdout


def test_without_a_verb_it_shows_its_help():
    """A group by itself does nothing but say what it can do."""
    result = CliRunner().invoke(executor_group, [])
    assert "Host models in this process" in result.output
