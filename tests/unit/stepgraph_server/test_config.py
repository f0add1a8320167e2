"""Settings come from flags, the environment and defaults, in this order, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepgraph_server.config import LimitSettings, SettingError, Settings, load
from stepgraph_server.core.instants import MILLISECOND, MINUTE, SECOND


def test_nothing_given_means_the_defaults():
    loaded = load(environment={})

    assert loaded.settings == Settings()
    assert {row.source for row in loaded.describe()} == {"default"}


def test_a_flag_wins_over_the_environment_and_the_environment_over_the_default():
    environment = {"STEPGRAPH_LISTEN": "127.0.0.1:1", "STEPGRAPH_SESSION_PING_INTERVAL": "2s"}

    loaded = load({"listen": "127.0.0.1:2"}, environment)

    assert loaded.settings.listen == "127.0.0.1:2"
    assert loaded.settings.session.ping_interval == 2 * SECOND
    rows = {row.name: row for row in loaded.describe()}
    assert rows["listen"].source == "the flag for listen"
    assert rows["session.ping_interval"].source == "STEPGRAPH_SESSION_PING_INTERVAL"
    assert rows["session.ping_interval"].value == "2 s"
    assert rows["retry.max_tries"].source == "default"


def test_a_group_keeps_the_defaults_of_what_is_not_given():
    loaded = load({"limits.max_labels": "7"}, {})

    assert loaded.settings.limits == LimitSettings(max_labels=7)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("64KiB", 65_536), ("1.5 MiB", 1_572_864), ("100b", 100)]
)
def test_sizes_have_units(text, size):
    assert load({"limits.max_run_bytes": text}, {}).settings.limits.max_run_bytes == size


@pytest.mark.parametrize(
    ("text", "span"),
    [("0", 0), ("250ms", 250 * MILLISECOND), ("1.5s", 1_500_000), ("2 min", 2 * MINUTE)],
)
def test_times_have_units(text, span):
    assert load({"tasks.total": text}, {}).settings.tasks.total == span


@pytest.mark.parametrize(("text", "flag"), [("true", True), ("0", False), ("Yes", True)])
def test_flags_are_words(text, flag):
    assert load({"memory": text}, {}).settings.memory is flag


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("limits.max_labels", "0", "a whole number"),
        ("limits.max_labels", "-1", "a whole number"),
        ("limits.max_labels", "many", "a whole number"),
        ("limits.max_run_bytes", "64 parsecs", "a size"),
        ("limits.max_run_bytes", "0", "a size"),
        ("tasks.run", "10", "a time"),
        ("tasks.run", "soon", "a time"),
        ("retry.factor", "2x", "a number"),
        ("memory", "perhaps", "true or false"),
        ("log_level", "loud", "debug, info, warning, error"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused_with_what_was_expected(name, text, expected):
    with pytest.raises(SettingError, match=expected) as caught:
        load({name: text}, {})

    assert caught.value.name == name
    assert repr(text) in caught.value.message


def test_an_unknown_name_is_refused():
    with pytest.raises(SettingError, match="no such setting"):
        load({"limits.colour": "red"}, {})


@pytest.mark.parametrize(
    "flags",
    [
        {"session.silence_limit": "6s"},
        {"session.ping_interval": "10ms"},
        {"watch_keepalive": "0"},
        {"limits.max_inline_value_bytes": "2MiB"},
        {"limits.max_request_bytes": "1MiB"},
        {"session.max_frame_bytes": "9MiB"},
        {"pages.max_response_bytes": "3MiB"},
        {"data": ""},
        {"retry.factor": "0.5"},
        {"retry.jitter": "2"},
    ],
)
def test_settings_that_contradict_each_other_are_refused(flags):
    with pytest.raises(SettingError):
        load(flags, {})


def test_memory_needs_no_file():
    loaded = load({"memory": "true", "data": ""}, {})

    assert loaded.settings.data is None


def test_a_path_may_start_at_home():
    loaded = load({"data": "~/runs.db"}, {})

    assert loaded.settings.data == Path.home() / "runs.db"


def test_every_setting_has_a_row_with_a_meaning_and_a_variable():
    rows = load(environment={}).describe()

    assert len({row.variable for row in rows}) == len(rows) > 40
    assert all(row.meaning.endswith(".") and row.value for row in rows)
    assert {row.variable for row in rows} >= {"STEPGRAPH_DATA", "STEPGRAPH_LIMITS_MAX_RUN_EVENTS"}


def test_variables_that_look_like_settings_and_are_none_are_known():
    loaded = load({}, {"STEPGRAPH_LISTN": "x", "STEPGRAPH_LISTEN": "127.0.0.1:1", "HOME": "/"})

    assert loaded.unknown == ("STEPGRAPH_LISTN",)


def test_the_process_environment_is_read_if_no_other_is_given(monkeypatch):
    monkeypatch.setenv("STEPGRAPH_LOG_LEVEL", "error")

    assert load().settings.log_level == "error"


def test_the_file_counts_after_the_environment_and_before_the_defaults(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('[server]\nlisten = "127.0.0.1:3"\n[server.retry]\nmax_tries = 5\n')

    loaded = load({}, {"STEPGRAPH_LISTEN": "127.0.0.1:4"}, file=str(path))

    assert loaded.settings.listen == "127.0.0.1:4"
    assert loaded.settings.retry.max_tries == 5
    rows = {row.name: row.source for row in loaded.describe()}
    assert rows["retry.max_tries"] == str(path)
    assert load({}, {"STEPGRAPH_CONFIG": str(path)}).settings.retry.max_tries == 5


def test_a_misspelt_flag_is_told_what_was_meant():
    with pytest.raises(SettingError, match=r"did you mean limits\.max_labels\?"):
        load({"limits.max_label": "3"}, {})
