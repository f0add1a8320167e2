"""One clear line and an exit code for whatever goes wrong, and a server that stops when it is told."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from contextlib import asynccontextmanager

import pytest
from click.testing import CliRunner

from stepgraph_server import app, command
from stepgraph_server.storage.errors import StoreInUse, StoreTooNew, StoreUnusable
from stepgraph_server.telemetry import logs


@pytest.fixture(autouse=True)
def keep_logging_as_it_was():
    logger = logging.getLogger(logs.ROOT)
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # What whoever runs the tests has at home is none of their business.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def run(*args, **env):
        return CliRunner().invoke(command.serve, list(args), env=env, catch_exceptions=False)

    return run


def soon(action):
    """Do something from another thread, while the command runs in this one."""
    timer = threading.Timer(0.3, action)
    timer.daemon = True
    timer.start()


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def test_it_says_when_it_is_ready_and_stops_on_a_signal(run, tmp_path):
    soon(terminate)

    result = run("--listen", "127.0.0.1:0", "--data", "data/runs.db")

    assert result.exit_code == 0
    [line] = result.stdout.splitlines()
    assert line.startswith(f"stepgraph {app.version()} is ready on 127.0.0.1:")
    assert line.endswith(f", data in data/runs.db, process {os.getpid()}")
    assert (tmp_path / "data" / "runs.db").exists()
    assert "Stopping" in result.stderr
    assert "Stopped" in result.stderr


def test_with_json_logs_readiness_is_an_event(run):
    soon(terminate)

    result = run("--listen", "127.0.0.1:0", "--memory", "--log-format", "json")

    assert result.exit_code == 0
    assert not result.stdout
    assert '"action": "server.ready"' in result.stderr
    assert '"action": "data.ephemeral"' in result.stderr


def test_a_variable_that_is_misspelt_is_warned_of_with_what_was_meant(run):
    """And those of the command line are none of its business."""
    soon(terminate)

    result = run(
        *("--listen", "127.0.0.1:0", "--memory"),
        STEPGRAPH_LIMIT_MAX_LABELS="3",
        STEPGRAPH_SERVER="elsewhere:1",
        STEPGRAPH_ZZZZ="?",
    )

    assert result.exit_code == 0
    said = [line for line in result.stderr.splitlines() if "no setting" in line]
    assert len(said) == 2
    assert "variable=STEPGRAPH_LIMIT_MAX_LABELS closest=STEPGRAPH_LIMITS_MAX_LABELS" in said[0]
    assert "variable=STEPGRAPH_ZZZZ closest=none" in said[1]


def test_listening_for_everybody_is_warned_of(run):
    soon(terminate)

    result = run("--listen", "0.0.0.0:0", "--insecure", "--memory")

    assert result.exit_code == 0
    assert "no TLS and no authentication" in result.stderr


@pytest.mark.parametrize(
    ("kind", "action"),
    [("overlay", "data.ephemeral"), ("nfs4", "data.remote"), ("ext4", ""), ("", "")],
)
def test_a_place_that_does_not_keep_data_is_warned_of(run, monkeypatch, kind, action):
    """A container without a volume, and SQLite over a network; nothing is said of an ordinary disk."""
    monkeypatch.setattr(command, "file_system", lambda place: kind)
    soon(terminate)

    result = run("--listen", "127.0.0.1:0", "--data", "runs.db", "--log-format", "json")

    assert result.exit_code == 0
    said = [line for line in result.stderr.splitlines() if '"data.' in line]
    assert len(said) == bool(action)
    assert all(action in line and kind in line and "runs.db" in line for line in said)


@pytest.mark.parametrize(
    ("args", "code", "text"),
    [
        (["--listen", "0.0.0.0:7233", "--memory"], 3, "--insecure"),
        (["--listen", "nowhere", "--memory"], 3, "is not host:port"),
        (["--set", "limits.max_labels=none"], 2, "expected a whole number"),
        (["--set", "limits.colour=red"], 2, "no such setting"),
        (["--set", "limits"], 2, "expected NAME=VALUE"),
        (["--log-level", "loud"], 2, "expected one of debug"),
        (["--memory", "--data", "x.db"], 2, "exclude each other"),
        (["--bogus"], 2, "No such option"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(run, args, code, text):
    result = run(*args)

    assert result.exit_code == code
    assert not result.stdout
    assert text in result.stderr


def test_a_port_in_use_is_said(run):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        result = run("--listen", address, "--memory")

    assert result.exit_code == 3
    assert result.stderr.startswith(f"stepgraph serve: can't listen on {address}: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreUnusable("/data/x.db", "it is a folder", "Name a file"), 4),
        (StoreTooNew("/data/x.db", 9, 1), 4),
        (StoreInUse("/data/x.db", "/data/x.db.lock", 7), 5),
    ],
)
def test_data_that_can_t_be_used_is_said(run, monkeypatch, error, code):
    @asynccontextmanager
    async def fail(settings, **_):
        raise error
        yield

    monkeypatch.setattr(app, "running_server", fail)

    result = run("--listen", "127.0.0.1:0")

    assert result.exit_code == code
    assert result.stderr == f"stepgraph serve: {error}\n"


def test_a_fault_goes_to_the_log(run, monkeypatch):
    @asynccontextmanager
    async def fail(settings, **_):
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(app, "running_server", fail)

    result = run("--memory")

    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.stderr


def test_a_second_signal_ends_it_at_once(run, monkeypatch):
    exits = []

    @asynccontextmanager
    async def stubborn(settings, **_):
        async with real(settings) as server:
            yield server
            terminate()
            while not exits:
                await app.asyncio.sleep(0.01)

    real = app.running_server
    monkeypatch.setattr(app, "running_server", stubborn)
    monkeypatch.setattr(os, "_exit", exits.append)
    soon(terminate)

    run("--listen", "127.0.0.1:0", "--memory")

    assert exits == [128 + signal.SIGTERM]


def test_settings_are_shown_with_where_they_come_from(run):
    result = run("--settings", "--set", "retry.max_tries=5", STEPGRAPH_LISTEN="127.0.0.1:1")

    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "127.0.0.1:1" in lines["listen"]
    assert lines["listen"].endswith("(from STEPGRAPH_LISTEN)")
    assert lines["retry.max_tries"].endswith("(from the flag for retry.max_tries)")
    assert "(from" not in lines["retry.jitter"]


def test_settings_may_stand_in_a_file(run, tmp_path):
    """Named behind the command or in the environment; what is wrong there is said in one line."""
    file = tmp_path / "settings.toml"
    file.write_text("[server.retry]\nmax_tries = 5\n")

    for result in (
        run("--settings", "--config", "settings.toml"),
        run("--settings", STEPGRAPH_CONFIG="settings.toml"),
    ):
        lines = {line.split()[0]: line for line in result.stdout.splitlines()}
        assert lines["retry.max_tries"].endswith("(from settings.toml)")
    file.write_text("[server.retry]\nmax_try = 5\n")
    result = run("--settings", "--config", "settings.toml")
    assert result.exit_code == 2
    assert "did you mean retry.max_tries?" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_help_lists_the_exit_codes(run):
    result = run("--help")

    for code in ("0", "1", "2", "3", "4", "5", "128 + n"):
        assert f"\n    {code}  " in result.stdout


def test_the_time_that_stopping_took_is_logged(run):
    started = time.monotonic()
    soon(terminate)

    result = run("--listen", "127.0.0.1:0", "--memory")

    assert "seconds=" in result.stderr
    assert time.monotonic() - started < 10
