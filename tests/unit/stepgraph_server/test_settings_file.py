"""A file of settings is read as flags would be, and what is wrong in it is named with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepgraph_server import settings_file
from stepgraph_server.settings_file import SettingsFileError, meant, read_file, usual_place

NAMES = ("listen", "memory", "limits.max_labels", "retry.factor")


@pytest.fixture
def written(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "settings.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def read(named="", environment=None):
    return read_file(named, environment or {}, NAMES)


def test_texts_are_those_that_flags_would_have(written):
    path = written(
        '[client]\nserver = "x:1"\n[server]\nlisten = "a:1"\nmemory = true\n'
        "[server.limits]\nmax_labels = 7\n[server.retry]\nfactor = 1.5\n"
    )

    file = read(path)

    assert file.path == Path(path)
    assert file.texts == {
        "listen": "a:1",
        "memory": "true",
        "limits.max_labels": "7",
        "retry.factor": "1.5",
    }


def test_the_environment_names_a_file_and_a_flag_wins(written, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text('[server]\nlisten = "b:2"\n')
    environment = {"STEPGRAPH_CONFIG": str(other)}

    assert read(environment=environment).texts == {"listen": "b:2"}
    assert read(written(""), environment).texts == {}


def test_the_usual_place_may_be_empty(tmp_path):
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}

    file = read(environment=environment)

    assert file.path == tmp_path / "stepgraph" / "config.toml"
    assert file.texts == {}
    file.path.parent.mkdir()
    file.path.write_text("[server]\nmemory = false\n")
    assert read(environment=environment).texts == {"memory": "false"}


def test_a_relative_folder_counts_for_nothing():
    """As the specification of these variables has it."""
    assert usual_place({"XDG_CONFIG_HOME": "here", "HOME": "/home/ada"}) == Path(
        "/home/ada/.config/stepgraph/config.toml"
    )


def test_a_service_without_a_home_has_no_usual_place():
    assert usual_place({}) is None
    assert read().texts == {}


def test_a_file_that_was_named_must_be_there(tmp_path):
    with pytest.raises(SettingsFileError, match=r"gone\.toml can't be read: No such file"):
        read(str(tmp_path / "gone.toml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qqq = 1", r"there is no table \[qqq\]; there are"),
        ("[servr]", r"no table \[servr\]; did you mean server\?"),
        ("server = 3", r"write \[server\] on a line of its own"),
        ("[server]\nlisen = 'x'", r"no setting server\.lisen; did you mean listen\?"),
        ("[server]\nmax_labels = 3", r"did you mean limits\.max_labels\?"),
        ("[server.limits]\nzzz = 3", r"no setting server\.limits\.zzz; `stepgraph serve"),
        ("[server]\nlisten = ['x']", "expected a text, a number, or true or false"),
        ("[server]\nlimits = 3", r"no setting server\.limits"),
        ("[server", "is not TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(written, text, said):
    path = written(text)

    with pytest.raises(SettingsFileError, match=said) as caught:
        read(path)

    assert path in str(caught.value)


def test_a_file_is_bounded_and_text(tmp_path, monkeypatch):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsFileError, match="is not TOML"):
        read(str(path))
    monkeypatch.setattr(settings_file, "MAX_FILE_BYTES", 3)
    path.write_text("[server]")
    with pytest.raises(SettingsFileError, match="too large"):
        read(str(path))


def test_what_is_meant_is_near_or_ends_alike():
    assert meant("limits.max_lables", NAMES) == "; did you mean limits.max_labels?"
    assert meant("session.factor", NAMES) == "; did you mean retry.factor?"
    assert meant("qqq", NAMES) == ""
