"""Settings come from flags, the environment, a file and defaults, in this order, and say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepgraph_client.command import settings
from stepgraph_client.command.settings import (
    HIDDEN,
    SETTINGS,
    File,
    Found,
    Setting,
    SettingsError,
    find,
    read_environment,
    read_file,
    usual_place,
)

NO_FILE = File(path=None, exists=False, texts={})


@pytest.fixture
def written(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "settings.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_a_flag_counts_before_the_environment_the_file_and_the_default(written) -> None:
    file = read_file(written('[client]\nserver = "c:3"\nnamespace = "c"\ntimeout = "3s"\n'), {})
    environment = {"STEPGRAPH_SERVER": "b:2", "STEPGRAPH_NAMESPACE": "b"}
    found = find({"server": "a:1"}, environment, file)
    assert {name: (each.text, each.source) for name, each in found.items()} == {
        "server": ("a:1", "the flag --server"),
        "namespace": ("b", "STEPGRAPH_NAMESPACE"),
        "timeout": ("3s", str(file.path)),
        "color": ("auto", "default"),
    }


def test_a_variable_that_is_empty_is_none() -> None:
    """As whoever unsets it in a script would write it."""
    assert find({}, {"STEPGRAPH_SERVER": ""}, NO_FILE)["server"].source == "default"


def test_each_setting_has_its_flag_and_variable() -> None:
    assert [(each.flag, each.variable) for each in SETTINGS] == [
        ("--server", "STEPGRAPH_SERVER"),
        ("--namespace", "STEPGRAPH_NAMESPACE"),
        ("--timeout", "STEPGRAPH_TIMEOUT"),
        ("--color", "STEPGRAPH_COLOR"),
    ]


def test_a_secret_is_not_shown() -> None:
    secret = Setting(name="token", default="", metavar="TEXT", meaning="", is_secret=True)
    assert Found(setting=secret, text="s3cret", source="x").shown == HIDDEN
    assert Found(setting=secret, text="", source="x").shown == ""
    open_one = Setting(name="server", default="", metavar="", meaning="")
    assert Found(setting=open_one, text="x:1", source="x").shown == "x:1"


def test_a_file_may_be_named_by_the_environment(written) -> None:
    path = written('[client]\nserver = "c:3"\n[server.limits]\nmax_labels = 3\n')
    assert read_file("", {"STEPGRAPH_CONFIG": path}).texts == {"server": "c:3"}


def test_the_usual_place_may_be_empty(tmp_path) -> None:
    file = read_file("", {"XDG_CONFIG_HOME": str(tmp_path)})
    assert (file.exists, file.path) == (False, tmp_path / "stepgraph" / "config.toml")
    assert read_file("", {}) == NO_FILE
    home = {"XDG_CONFIG_HOME": "relative", "HOME": "/home/ada"}
    assert usual_place(home) == Path("/home/ada/.config/stepgraph/config.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[clinet]", r"no setting clinet; did you mean client\?"),
        ("[client]\nsevrer = 'x:1'", r"no setting client\.sevrer; did you mean server\?"),
        ("[client]\nqqq = 'x'", "there are server, namespace, timeout, color"),
        (
            "[client]\ntimeout = 3",
            r'client\.timeout must be a text: write it in quotes, timeout = "…"',
        ),
        ("client = 3", r"write \[client\] on a line of its own"),
        ("[client", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(written, text, said) -> None:
    path = written(text)
    with pytest.raises(SettingsError, match=said) as caught:
        read_file(path, {})
    assert path in str(caught.value)


def test_a_file_that_was_named_must_be_there_and_be_one(tmp_path, monkeypatch) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml can't be read: No such file"):
        read_file(str(tmp_path / "gone.toml"), {})
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="is not TOML"):
        read_file(str(path), {})
    monkeypatch.setattr(settings, "MAX_FILE_BYTES", 3)
    path.write_text("[client]")
    with pytest.raises(SettingsError, match="too large"):
        read_file(str(path), {})


def test_the_environment_is_that_of_the_process() -> None:
    assert read_environment() is os.environ
