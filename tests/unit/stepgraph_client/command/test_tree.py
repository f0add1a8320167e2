"""Options of all commands, wherever they stand, and verbs that need not be named."""

from __future__ import annotations

import pytest


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('[client]\nnamespace = "of-file"\n')
    return str(path)


def asked(server):
    return [each.namespace for each in server.requests["ListExecutors"]]


def test_an_option_of_all_commands_may_stand_before_or_behind_a_command(run, server) -> None:
    """Behind is the last word."""
    run("--namespace", "before", "executors", "list")
    run("executors", "list", "--namespace", "behind")
    run("executors", "--namespace", "behind-a-group-with-a-default")
    run("--namespace", "before", "executors", "list", "--namespace", "behind")
    assert asked(server) == ["before", "behind", "behind-a-group-with-a-default", "behind"]


def test_the_environment_counts_before_the_file_and_after_a_flag(
    run, server, file, monkeypatch
) -> None:
    run("executors", "--config", file)
    monkeypatch.setenv("STEPGRAPH_NAMESPACE", "of-environment")
    run("executors", "--config", file)
    run("executors", "--config", file, "--namespace", "of-flag")
    monkeypatch.setenv("STEPGRAPH_CONFIG", file)
    monkeypatch.delenv("STEPGRAPH_NAMESPACE")
    run("executors")
    assert asked(server) == ["of-file", "of-environment", "of-flag", "of-file"]


def test_what_people_are_told_to_type_has_their_flags(run, server, file) -> None:
    ended = run("--config", file, "runs", "list", "--namespace", "my team")
    assert (
        f"stepgraph --config {file} --server {server.address} --namespace 'my team' run GRAPH"
        in ended.err
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--server", "x"), "server (from the flag --server): 'x' is not HOST:PORT"),
        (("--timeout", "soon"), "timeout (from the flag --timeout): 'soon' is not a duration"),
        (("--timeout", "0s"), "'0s' is no time at all"),
        (("--color", "red"), "color (from the flag --color): 'red' is not auto, always or never"),
        (("--config", "/gone.toml"), "the settings file /gone.toml can't be read"),
    ],
    ids=" ".join,
)
def test_a_setting_that_can_not_be_read_says_where_it_is_from(run, words, said) -> None:
    ended = run("executors", "list", *words)
    assert ended.code == 2
    assert said in ended.err


def test_a_variable_that_can_not_be_read_says_where_it_is_from(run, monkeypatch) -> None:
    monkeypatch.setenv("STEPGRAPH_TIMEOUT", "soon")
    assert "timeout (from STEPGRAPH_TIMEOUT)" in run("executors").err


def test_no_color_is_short_for_never(run) -> None:
    settings = {
        each["name"]: each for each in run("config", "--no-color", "--json").json["settings"]
    }
    assert settings["color"]["value"] == "never"


def test_help_names_the_options_of_all_commands_once(run) -> None:
    """A command's own come first; one with a --timeout of its own has no other."""
    out = run("runs", "list", "--help").out
    assert "Also takes --server, --namespace, --timeout, --color, --no-color, --config;" in out
    assert out.count("--server") == 1
    assert "RUN_ID" in run("runs", "get", "--help").out.splitlines()[0]
    assert "--timeout, --color" not in run("health", "--help").out


def test_a_group_with_a_default_shows_its_own_help(run) -> None:
    assert "watch" in run("interrupts", "--help").out
    assert "-o, --output" not in run("interrupts", "--help").out


def test_a_group_without_a_default_shows_what_it_has(run) -> None:
    ended = run("runs")
    assert ended.code == 2
    assert "Commands:" in ended.err + ended.out


def test_a_verb_that_is_misspelt_is_told_which_was_meant(run) -> None:
    ended = run("runs", "histroy", "r")
    assert ended.code == 2
    assert "there is no command 'histroy'; did you mean history?" in ended.err
    assert "there is no command 'qqq'\n" in run("runs", "qqq").err
