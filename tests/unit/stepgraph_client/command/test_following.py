from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from stepgraph.v1.event_pb2 import RunPaused
from stepgraph_client.command.calling import ExitCode, Settings
from stepgraph_client.command.following import Follow, ManyRuns, follow
from stepgraph_client.watching import RunNews
from tests.support.fake_server import LOST, run_event, unknown_event

if TYPE_CHECKING:
    from stepgraph_client.client import Client


def progress(server, **more: object) -> Follow:
    return Follow(settings=Settings(server=server.address), as_json=False, run_id="r", **more)


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
    assert f"stepgraph --server {server.address} runs watch r --after 1\n" in err
    assert not server.requests["CancelRun"]


def test_a_lost_server_is_told_once(server, capsys) -> None:
    server.add_run("r", run_event(run_paused=RunPaused())).complete()
    server.refuse("WatchRun", LOST, LOST)
    assert watched(progress(server)) == 0
    assert capsys.readouterr().err == "lost the server (connection reset); trying again…\n"


def test_stopping_a_watch_over_all_runs_has_less_to_say() -> None:
    follow_ = Follow(settings=Settings(), as_json=False)
    assert follow_.stopped_text() == "Stopped watching."


def test_a_watch_may_begin_in_the_middle(server, capsys) -> None:
    server.add_run("r", run_event(run_paused=RunPaused(reason="lunch"))).complete()
    assert watched(progress(server, after_sequence=1)) == 0
    assert "lunch" not in capsys.readouterr().out


def test_news_of_many_runs_bear_the_name_of_their_run(capsys) -> None:
    printer = ManyRuns(Settings(), as_json=False)
    ended = run_event(2)
    ended.run_completed.SetInParent()
    for event in (run_event(1, run_paused=RunPaused(reason="lunch")), ended):
        printer.print(RunNews(run_id="r", event=event, resume_token=""))
    assert capsys.readouterr().out.splitlines()[0].startswith("r  paused: lunch")
    assert printer._narrators == {}


def test_news_of_many_runs_are_json_lines_if_that_is_wanted(capsys) -> None:
    event = run_event(1, run_paused=RunPaused())
    ManyRuns(Settings(), as_json=True).print(RunNews(run_id="r", event=event, resume_token=""))
    assert (
        capsys.readouterr().out == '{"run_id": "r", "event": {"sequence": 1, "run_paused": {}}}\n'
    )
    assert asyncio.iscoroutinefunction(Follow.watch)
