from __future__ import annotations

import asyncio
import random

import grpc
import pytest

from stepgraph.v1.event_pb2 import RunPaused, RunUnpaused, TransientEvent
from stepgraph.v1.run_service_pb2 import (
    WatchBatch,
    WatchRunRequest,
    WatchRunResponse,
    WatchRunsResponse,
)
from stepgraph.v1.task_pb2 import TaskProgress
from stepgraph_client.calls import Caller, Patience
from stepgraph_client.client import Client
from stepgraph_client.errors import InvalidRequest, NotFound, ServerFault, Unreachable
from stepgraph_client.watching import Follower, SequenceCursor, StreamBroken, is_final
from tests.support.fake_server import LOST, Refusal, run_event, text_of, unknown_event


def paused():
    return run_event(run_paused=RunPaused())


def delta(text: str) -> TransientEvent:
    return TransientEvent(
        task_id="1/a/t0/e0",
        attempt=1,
        progress=TaskProgress(text=TaskProgress.TextDelta(text=text)),
    )


async def sequences(client, run_id: str, after: int = 0) -> list[int]:
    return [event.sequence async for event in client.watch(run_id, after)]


async def test_a_finished_run_is_told_from_any_event_on(client, server) -> None:
    run = server.add_run("r", paused(), paused())
    run.complete()
    assert await sequences(client, "r") == [1, 2, 3]
    assert await sequences(client, "r", after=2) == [3]
    assert await sequences(client, "r", after=3) == []


async def test_a_stream_that_is_lost_again_and_again_has_no_gap_and_no_duplicate(
    client, server
) -> None:
    run = server.add_run("r", *(paused() for _ in range(300)))
    run.complete()
    dice = random.Random(7)
    run.cuts.extend(dice.randrange(1, 12) for _ in range(30))
    assert await sequences(client, "r") == list(range(1, 302))
    assert len(server.requests["WatchRun"]) > 10


async def test_events_that_happen_while_watching_come_at_once(client, server) -> None:
    run = server.add_run("r", paused())
    seen = []
    async for event in client.watch("r"):
        seen.append(event.sequence)
        if len(seen) == 1:
            run.add(run_event(run_unpaused=RunUnpaused()))
            run.complete()
    assert seen == [1, 2, 3]


async def test_what_happens_while_the_stream_is_lost_is_not_missed(client, server) -> None:
    run = server.add_run("r", paused(), paused())
    run.cuts.append(1)
    seen = []
    async for event in client.watch("r"):
        seen.append(event.sequence)
        if event.sequence == 1:
            run.complete()
    assert seen == [1, 2, 3]


async def test_an_unknown_kind_is_skipped_and_the_cursor_moves_over_it(client, server) -> None:
    run = server.add_run("r", paused(), unknown_event(), unknown_event(), paused())
    run.complete()
    run.cuts.append(3)
    assert await sequences(client, "r") == [1, 4, 5]
    assert [each.after_sequence for each in server.requests["WatchRun"]] == [0, 3]


async def test_deltas_come_between_the_events(client, server) -> None:
    run = server.add_run("r", paused(), delta("a"), TransientEvent(), delta("b"))
    run.complete()
    events = [event async for event in client.watch("r")]
    assert text_of(events) == ["run_paused", "progress", "progress", "run_completed"]


async def test_an_event_that_comes_twice_is_told_once(client, server) -> None:
    run = server.add_run("r", paused())
    run.events.append(run.events[0])
    run.complete()
    assert await sequences(client, "r") == [1, 2]


async def test_a_hole_is_asked_for_again_and_then_called_a_fault(client, server) -> None:
    run = server.add_run("r", paused())
    run.add(run_event(3, run_paused=RunPaused()))
    with pytest.raises(StreamBroken) as caught:
        await sequences(client, "r")
    assert (caught.value.run_id, caught.value.expected, caught.value.found) == ("r", 2, 3)
    assert [each.after_sequence for each in server.requests["WatchRun"]] == [0, 1, 1]


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (grpc.StatusCode.OUT_OF_RANGE, "SEQUENCE_OUT_OF_RANGE", InvalidRequest),
        (grpc.StatusCode.NOT_FOUND, "RUN_DELETED", NotFound),
        (grpc.StatusCode.DATA_LOSS, "RUN_QUARANTINED", ServerFault),
    ],
)
async def test_a_refusal_ends_the_watch(client, server, code, reason, kind) -> None:
    server.add_run("r", paused())
    server.refuse("WatchRun", Refusal(code=code, reason=reason))
    with pytest.raises(kind):
        await sequences(client, "r")
    assert len(server.requests["WatchRun"]) == 1


async def test_a_server_that_is_shutting_down_is_waited_for(client, server) -> None:
    server.add_run("r").complete()
    leaving = Refusal(code=grpc.StatusCode.UNAVAILABLE, reason="SHUTTING_DOWN", retry_after_s=0.01)
    server.refuse("WatchRun", leaving, leaving)
    assert await sequences(client, "r") == [1]


async def test_a_server_that_stays_away_is_given_up_in_the_end(client, server) -> None:
    server.add_run("r")
    server.refuse("WatchRun", *[LOST] * 9)
    with pytest.raises(Unreachable) as caught:
        await sequences(client, "r")
    assert caught.value.tries == 4


async def test_whoever_watches_may_be_told_of_each_loss(client, server) -> None:
    server.add_run("r").complete()
    server.refuse("WatchRun", LOST, LOST)
    losses = []
    async for _ in client.watch("r", on_lost=lambda status, n: losses.append((status.message, n))):
        pass
    assert losses == [("connection reset", 1), ("connection reset", 2)]


async def test_progress_restores_the_patience(client, server) -> None:
    run = server.add_run("r", *(paused() for _ in range(9)))
    run.complete()
    # More losses than the patience has tries, but something came between them.
    run.cuts.extend([1] * 9)
    assert await sequences(client, "r") == list(range(1, 11))


async def test_a_silent_stream_is_opened_again_from_where_it_was(server) -> None:
    run = server.add_run("r", paused())
    async with Client(server.address) as client:
        cursor = SequenceCursor("r", 0)

        def open_stream():
            request = WatchRunRequest(run_id="r", after_sequence=cursor.after_sequence)
            return client._stubs.runs.WatchRun(request)

        follower = Follower(client._caller, cursor, open_stream, silence_s=0.05)
        seen = []
        async for event in follower.items():
            seen.append(event.sequence)
            if len(server.requests["WatchRun"]) == 1 and len(seen) == 1:
                asyncio.get_running_loop().call_later(0.2, run.complete)
    assert seen == [1, 2]
    assert len(server.requests["WatchRun"]) > 1


async def test_a_watcher_that_leaves_takes_its_stream_along(client, server) -> None:
    server.add_run("r", paused())
    events = client.watch("r")
    assert (await anext(events)).sequence == 1
    await events.aclose()


async def test_only_history_ends_where_the_run_is_now(client, server) -> None:
    server.add_run("r", paused())
    assert [e.sequence async for e in client.watch("r", history_only=True)] == [1]


def news(run_id: str, *events) -> WatchRunsResponse:
    return WatchRunsResponse(batches=[WatchBatch(run_id=run_id, events=events)])


async def test_many_runs_are_resumed_by_the_servers_token(client, server) -> None:
    first = run_event(1, run_paused=RunPaused())
    second = run_event(2, run_unpaused=RunUnpaused())
    late = WatchBatch(run_id="a", transient_events=[delta("x"), TransientEvent()])
    server.news = [
        news("a", first),
        news("b", first, unknown_event(2)),
        # The same again, as a server may send around a restart.
        news("a", first, second),
        WatchRunsResponse(batches=[late]),
    ]
    told = [each async for each in client.watch_runs(graph="g")]
    assert [(each.run_id, text_of([each.event])[0]) for each in told] == [
        ("a", "run_paused"),
        ("b", "run_paused"),
        ("a", "run_unpaused"),
        ("a", "progress"),
    ]
    assert [each.resume_token for each in told] == ["", "1", "2", "3"]
    again = [each async for each in client.watch_runs(resume_token="3")]
    assert [text_of([each.event])[0] for each in again] == ["progress"]


async def test_a_run_that_is_over_is_forgotten(client, server) -> None:
    ended = run_event(1)
    ended.run_completed.SetInParent()
    server.news = [news("a", ended)]
    assert [is_final(each.event) async for each in client.watch_runs()] == [True]


async def test_a_tree_is_watched_with_its_children(client, server) -> None:
    run = server.add_run("r", paused())
    run.complete()
    told = [each async for each in client.watch_tree("r")]
    assert [each.run_id for each in told] == ["r", "r"]
    assert server.requests["WatchRun"][0].include_descendants


def test_a_response_without_news_is_a_sign_of_life() -> None:
    cursor = SequenceCursor("r", 0)
    assert list(cursor.take(WatchRunResponse())) == []
    assert not cursor.finished
    assert Caller("x", Patience()).server == "x"
