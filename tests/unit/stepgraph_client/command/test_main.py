from __future__ import annotations

import importlib
from importlib.metadata import EntryPoint, EntryPoints

import click
import pytest

from stepgraph_client.command import main


def offer(monkeypatch, *entries: EntryPoint) -> None:
    def found(**wanted: str) -> EntryPoints:
        return EntryPoints(entries).select(**wanted)

    monkeypatch.setattr(main, "entry_points", found)


@click.command("hello")
def hello() -> None:
    """Say hello."""
    click.echo("hello")


def test_all_verbs_are_there(run) -> None:
    ended = run("--help")
    assert ended.code == 0
    for verb in (
        *("answer", "completion", "config", "doctor", "executors", "graphs", "health"),
        *("interrupts", "run", "runs", "serve", "values"),
    ):
        assert f"\n  {verb} " in ended.out
    assert "4  the server can't be reached" in ended.out


def test_the_version_is_told(run) -> None:
    assert run("--version").out.startswith("stepgraph ")


def test_a_verb_that_does_not_exist_is_typed_wrongly(run) -> None:
    """And one that is nearly right is told which was meant."""
    assert run("qqq").code == 2
    ended = run("interupts")
    assert ended.code == 2
    assert "there is no command 'interupts'; did you mean interrupts?" in ended.err


@pytest.mark.parametrize("words", [("runs", "get"), ("run", "react", "--input"), ()])
def test_what_is_no_text_is_typed_wrongly(run, words) -> None:
    """Bytes that are not UTF-8 come as surrogates, and nothing could be sent with them."""
    ended = run(*words, "a\udcff")
    assert ended.code == 2
    assert "b'a\\xff' is not UTF-8" in ended.err


def test_commands_of_other_packages_are_found(run, monkeypatch) -> None:
    entry = EntryPoint("hello", f"{__name__}:hello", main.PLUGINS)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: hello)
    offer(monkeypatch, entry)
    assert run("hello").out == "hello\n"
    assert "hello" in run("--help").out


def test_a_command_that_cannot_be_loaded_says_what_to_install(run, monkeypatch) -> None:
    offer(monkeypatch, EntryPoint("serve", "not_installed_here:serve", main.PLUGINS))
    ended = run("serve", "--port", "1")
    assert ended.code == 3
    assert "pip install 'stepgraph[server]'" in ended.err
    assert "Traceback" not in ended.err


def test_a_group_without_a_verb_shows_its_verbs(run) -> None:
    assert "watch" in run("runs", "--help").out


def test_the_server_may_come_from_the_environment(server, monkeypatch, capsys) -> None:
    monkeypatch.setenv("STEPGRAPH_SERVER", server.address)
    monkeypatch.setenv("STEPGRAPH_NAMESPACE", "team")
    monkeypatch.setattr("sys.argv", ["stepgraph", "executors"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 0
    assert server.requests["ListExecutors"][0].namespace == "team"
    assert importlib.import_module("stepgraph_client.command").__doc__


@pytest.mark.parametrize("option", ["--namespace", "--server", "--timeout"])
def test_an_option_that_a_command_of_others_does_not_know_is_told_where_it_goes(
    run, monkeypatch, option
) -> None:
    """The order is said, and not that there is no such option."""
    monkeypatch.setattr(EntryPoint, "load", lambda _self: hello)
    offer(monkeypatch, EntryPoint("hello", f"{__name__}:hello", main.PLUGINS))
    ended = run("hello", option, "x")
    assert ended.code == 2
    assert f"{option} goes before the command: stepgraph {option} … hello …" in ended.err
    assert "No such option" in run("hello", "--colour").err
