from __future__ import annotations

import io
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from stepgraph.v1.event_pb2 import RunPaused, TransientEvent
from stepgraph.v1.task_pb2 import TaskProgress
from stepgraph_client.command.calling import ExitCode, Settings
from stepgraph_client.command.following import Follow, ManyRuns, follow, is_live
from stepgraph_client.command.output import Form, Output
from stepgraph_client.command.settings import Color
from stepgraph_client.watching import RunNews
from tests.support.fake_server import LOST, run_event, unknown_event

if TYPE_CHECKING:
    from stepgraph_client.client import Client


def progress(server, **more: object) -> Follow:
    return Follow(settings=Settings(server=server.address), run_id="r", **more)


def watched(follow_: Follow) -> int | str | None:
    async def work(client: Client) -> None:
        await follow_.watch(client)

    with pytest.raises(SystemExit) as ended:
        follow(follow_, work)
    return ended.value.code


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("run_completed", ExitCode.OK),
        ("run_failed", ExitCode.RUN_FAILED),
        ("run_cancelled", ExitCode.RUN_CANCELLED),
    ],
)
def test_the_command_ends_as_the_run_ends(server, kind, code) -> None:
    event = run_event()
    getattr(event, kind).SetInParent()
    server.add_run("r", event)
    assert watched(progress(server)) == code


def test_ctrl_c_stops_the_watching_and_says_how_to_go_on(server, capsys) -> None:
    server.add_run("r", run_event(run_paused=RunPaused()), unknown_event())
    following = progress(server)

    def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.3, press)
    timer.start()
    assert watched(following) == ExitCode.INTERRUPTED
    err = capsys.readouterr().err
    assert "Stopped watching; the run goes on." in err
    assert f"stepgraph --server {server.address} runs cancel r\n" in err
    assert f"stepgraph --server {server.address} runs watch r --after 1\n" in err
    assert not server.requests["CancelRun"]


def test_a_lost_server_is_told_once(server, capsys) -> None:
    server.add_run("r", run_event(run_paused=RunPaused())).complete()
    server.refuse("WatchRun", LOST, LOST)
    assert watched(progress(server)) == 0
    assert capsys.readouterr().err == "lost the server (connection reset); trying again…\n"


def test_stopping_a_watch_over_all_runs_has_less_to_say() -> None:
    follow_ = Follow(settings=Settings())
    assert follow_.stopped_text() == "Stopped watching."


def test_a_watch_may_begin_in_the_middle(server, capsys) -> None:
    server.add_run("r", run_event(run_paused=RunPaused(reason="lunch"))).complete()
    assert watched(progress(server, after_sequence=1)) == 0
    assert "lunch" not in capsys.readouterr().out


def test_news_of_many_runs_bear_the_name_of_their_run(capsys) -> None:
    printer = ManyRuns(settings=Settings())
    ended = run_event(2)
    ended.run_completed.SetInParent()
    for event in (run_event(1, run_paused=RunPaused(reason="lunch")), ended):
        printer.print(RunNews(run_id="r", event=event, resume_token=""))
    assert capsys.readouterr().out.splitlines()[0].startswith("r  paused: lunch")
    assert printer.told == {}


def test_news_of_many_runs_are_json_lines_if_that_is_wanted(capsys) -> None:
    event = run_event(1, run_paused=RunPaused())
    many = ManyRuns(settings=Settings(), out=Output(Form.JSONL))
    many.print(RunNews(run_id="r", event=event, resume_token="t"))
    assert (
        capsys.readouterr().out
        == '{"run_id": "r", "event": {"sequence": 1, "run_paused": {}}, "resume_token": "t"}\n'
    )
    assert "runs watch --all --resume t" in many.stopped_text()


def test_a_watch_may_have_an_end(server, capsys) -> None:
    """The run goes on, which is said; the exit code is one of its own."""
    server.add_run("r", run_event(run_paused=RunPaused()))
    assert watched(progress(server, longest_s=0.2)) == ExitCode.TIME_IS_UP == 6
    assert capsys.readouterr().err.startswith("The time is up. Stopped watching; the run goes on.")


def test_a_tree_ends_as_its_root_does(server, capsys) -> None:
    """The end of a child is not the end of what was asked for."""
    child, root = run_event(1), run_event(2)
    child.run_completed.SetInParent()
    root.run_failed.SetInParent()
    many = ManyRuns(settings=Settings(server=server.address), root_run_id="r")
    many.print(RunNews(run_id="child", event=child, resume_token=""))
    assert many.exit_code == ExitCode.OK
    many.print(RunNews(run_id="r", event=root, resume_token="t"))
    assert many.exit_code == ExitCode.RUN_FAILED
    assert "runs watch r --tree --resume t" in many.stopped_text()


def test_a_lost_server_is_told_beside_json_as_well(server, capsys) -> None:
    server.add_run("r", run_event(run_paused=RunPaused())).complete()
    server.refuse("WatchRun", LOST)
    assert watched(progress(server, out=Output(Form.JSONL))) == 0
    out, err = capsys.readouterr()
    assert err.startswith("lost the server")
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "live"),
    [
        ({"force_terminal": True, "_environ": {"TERM": "xterm"}}, True),
        ({"force_terminal": True, "_environ": {"TERM": "dumb"}}, False),
        ({"force_terminal": True, "_environ": {"TERM": "xterm", "NO_COLOR": "1"}}, False),
        ({"force_terminal": True, "no_color": True, "_environ": {}}, False),
        ({"force_terminal": False, "_environ": {}}, False),
    ],
)
def test_only_a_terminal_that_wants_it_is_drawn_on(options, live) -> None:
    """Piped, dumb or without colour there are lines."""
    assert is_live(Console(file=io.StringIO(), **options)) is live


def test_what_streams_in_many_runs_is_told_by_whole_lines(capsys) -> None:
    """Pieces of several runs would not be told apart."""
    printer = ManyRuns(settings=Settings())
    for run_id, text in (("a", "on"), ("b", "x"), ("a", "e\ntw")):
        delta = TaskProgress(text=TaskProgress.TextDelta(text=text))
        event = TransientEvent(task_id="1/n/t0/e0", attempt=1, progress=delta)
        printer.print(RunNews(run_id=run_id, event=event, resume_token=""))
    assert capsys.readouterr().out == "a    │ one\n"
    printer.print(RunNews(run_id="b", event=run_event(run_paused=RunPaused()), resume_token=""))
    assert capsys.readouterr().out.splitlines()[0] == "b    │ x"


def test_on_a_terminal_a_run_is_shown_live(server, capsys, monkeypatch) -> None:
    """And its past alone is lines, since nothing of it changes any more."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Output(settings=Settings(color=Color.ALWAYS))
    server.add_run("r", run_event(run_paused=RunPaused(reason="lunch"))).complete()
    server.refuse("WatchRun", LOST)
    assert watched(progress(server, out=out)) == 0
    drawn = capsys.readouterr().out
    assert "\x1b[2K" in drawn
    assert "lost the server" in drawn
    history = progress(server, out=out)
    with pytest.raises(SystemExit):
        follow(history, lambda client: history.watch(client, history_only=True))
    assert "\x1b[2K" not in capsys.readouterr().out
