"""The contracts of the ports, line by line, on every backend."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest

from stepgraph.v1 import event_pb2, failure_pb2, run_pb2, state_pb2, value_pb2
from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.errors import (
    AppendInvalid,
    JournalUnavailable,
    RequestIdReused,
    RunExists,
    SequenceConflict,
    ValueMismatch,
    ValueTooLarge,
)
from stepgraph_server.storage.graphs import GraphReference
from stepgraph_server.storage.journal import MAX_WAITING_APPENDS
from stepgraph_server.storage.records import Prefix, RunProgress
from stepgraph_server.storage.runs import RunQuery
from stepgraph_server.storage.values import VALUE_CHUNK_BYTES
from tests.contracts.storing import (
    ANSWERED,
    COMPLETED,
    FAILED,
    OPEN,
    RUNNING,
    SUSPENDED,
    Bench,
    append,
    creation,
    ending,
    errors,
    key,
    question,
    request,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stepgraph_server.storage.records import StoredBatch
    from tests.contracts.conftest import Backend

MEGABYTE = 1024 * 1024


def spans(batches: list[StoredBatch]) -> list[tuple[int, int]]:
    return [(one.first_sequence, one.last_sequence) for one in batches]


# --- Appending


async def test_appends_of_one_turn_are_reported_once_and_in_order(bench: Bench) -> None:
    """What is submitted together is one commit, and one call."""
    marks = [object(), object(), object()]
    await bench.submit(
        append(1, 2, context=marks[0]),
        append(1, key=key("r2"), context=marks[1]),
        append(3, context=marks[2]),
    )
    assert [one.append.context for one in bench.reported] == marks
    assert errors(bench.reported) == [None, None, None]


async def test_positions_rise_in_the_order_of_commits(bench: Bench) -> None:
    """A position is the cursor of whoever watches many runs."""
    await bench.submit(append(1), append(1, key=key("r2")))
    await bench.submit(append(2), append(3))
    positions = [one.position for one in bench.reported]
    assert positions == sorted(set(positions))
    assert positions[0] > 0
    assert bench.store.journal.head_position() >= positions[-1]


@pytest.mark.parametrize("first", [1, 2, 4, 9])
async def test_an_append_carries_on_exactly_where_its_run_ends(bench: Bench, first: int) -> None:
    """Neither a repeated sequence nor a gap is let in."""
    await bench.submit(append(1, 2))
    (result,) = await bench.submit(append(first, creation=None))
    assert result.error is not None
    if first == 1:
        return
    assert isinstance(result.error, SequenceConflict)
    assert (result.error.first_sequence, result.error.last_sequence) == (first, 2)
    assert result.position == 0
    assert spans(await bench.store.journal.read(key(), 0, MEGABYTE)) == [(1, 2)]


async def test_an_append_to_a_run_that_does_not_exist_is_a_conflict(bench: Bench) -> None:
    """A run begins with its creation."""
    (result,) = await bench.submit(append(2))
    assert isinstance(result.error, SequenceConflict)
    assert result.error.last_sequence == 0


async def test_a_run_is_created_once(bench: Bench) -> None:
    """The second creation fails, in the same commit and later."""
    results = await bench.submit(append(1), append(1))
    assert errors(results) == [None, "RunExists"]
    (again,) = await bench.submit(append(1))
    assert isinstance(again.error, RunExists)
    assert again.error.key == key()


async def test_a_run_may_begin_with_the_appends_of_another(bench: Bench) -> None:
    """They are copied in the same commit, and have positions of their own; the other run stays as it is."""
    await bench.submit(append(1, 2), append(3), append(4))
    forked = append(
        4,
        5,
        key=key("f1"),
        creation=creation("f1", origin=b"o"),
        prefix=Prefix(source=key(), last_sequence=3),
    )
    [appended] = await bench.submit(forked)
    assert appended.error is None
    [carried_on] = await bench.submit(append(6, key=key("f1")))
    assert carried_on.error is None
    batches = await bench.store.journal.read(key("f1"), 0, 1 << 20)
    assert [(each.first_sequence, each.last_sequence) for each in batches] == [
        (1, 2),
        (3, 3),
        (4, 5),
        (6, 6),
    ]
    originals = await bench.store.journal.read(key(), 0, 1 << 20)
    assert [each.batch for each in batches[:2]] == [each.batch for each in originals[:2]]
    positions = [each.position for each in (*originals, *batches)]
    assert positions == sorted(set(positions))
    everything = await bench.store.journal.read_positions("default", 0, 1 << 20)
    assert [batch.position for _, batch in everything] == positions
    assert bench.store.journal.head_position() == carried_on.position
    record = await bench.store.runs.get(key("f1"))
    assert record is not None
    assert (record.progress.last_sequence, record.creation.origin) == (6, b"o")


@pytest.mark.parametrize(
    ("source", "last"),
    [("no", 3), ("r1", 2), ("r1", 9)],
    ids=["no run", "in an append", "beyond"],
)
async def test_a_prefix_that_is_not_there_fails_that_append_alone(
    bench: Bench, source: str, last: int
) -> None:
    """Nothing of the run is left, and its id is free."""
    await bench.submit(append(1), append(2, 3))
    forked = append(
        last + 1,
        key=key("f1"),
        creation=creation("f1"),
        prefix=Prefix(source=key(source), last_sequence=last),
    )
    bad, good = await bench.submit(forked, append(4))
    assert isinstance(bad.error, AppendInvalid)
    assert "can't be the prefix" in str(bad.error)
    assert good.error is None
    assert await bench.store.runs.get(key("f1")) is None
    assert await bench.store.journal.read(key("f1"), 0, 1 << 20) == []
    [again] = await bench.submit(append(1, key=key("f1")))
    assert again.error is None


async def test_the_same_id_in_another_namespace_is_another_run(bench: Bench) -> None:
    """Namespaces do not see each other."""
    other = key(namespace="other")
    results = await bench.submit(append(1), append(1, key=other), append(2, key=other))
    assert errors(results) == [None, None, None]
    assert spans(await bench.store.journal.read(key(), 0, MEGABYTE)) == [(1, 1)]
    assert len(await bench.store.journal.read(other, 0, MEGABYTE)) == 2


@pytest.mark.parametrize(
    "flawed",
    [
        append(1, creation=None),
        append(2, creation=creation()),
        append(3, 2),
        append(0, 1, creation=None),
        append(2, progress=RunProgress(status=RUNNING, last_sequence=7)),
    ],
    ids=["no creation", "created late", "empty", "before 1", "progress disagrees"],
)
async def test_an_append_that_breaks_its_contract_is_invalid(bench: Bench, flawed: object) -> None:
    """A fault of the caller is told apart from a race."""
    assert errors(await bench.submit(flawed)) == ["AppendInvalid"]
    assert await bench.store.runs.get(key()) is None


async def test_a_bad_append_does_not_fail_its_group(bench: Bench) -> None:
    """Others of the same commit are stored, whatever was wrong with the one."""
    await bench.submit(append(1, key=key("old"), request=request("used")))
    results = await bench.submit(
        append(1, key=key("a")),
        append(7, key=key("gap")),
        append(1, key=key("old")),
        append(2, key=key("a")),
        append(1, key=key("again"), request=request("used")),
        append(1, key=key("b")),
    )
    assert errors(results) == [
        None,
        "SequenceConflict",
        "RunExists",
        None,
        "RequestIdReused",
        None,
    ]
    assert spans(await bench.store.journal.read(key("a"), 0, MEGABYTE)) == [(1, 1), (2, 2)]
    assert await bench.store.runs.get(key("again")) is None


async def test_what_was_built_on_a_failed_append_is_skipped(bench: Bench) -> None:
    """Even if it would fit by chance: the run that it was built on does not exist."""
    await bench.submit(append(1, 3))
    # The creation fails; its successor carries on at 4, which is just where the run of that id ends.
    results = await bench.submit(append(1, 3), append(4), append(5))
    assert errors(results) == ["RunExists", "AppendSkipped", "AppendSkipped"]
    run = await bench.store.runs.get(key())
    assert run is not None
    assert run.progress.last_sequence == 3


async def test_after_the_failure_was_reported_the_run_goes_on(bench: Bench) -> None:
    """Whoever heard of the failure has read the run again."""
    await bench.submit(append(1, 3))
    await bench.submit(append(9))
    assert errors(await bench.submit(append(4))) == [None]


async def test_what_was_submitted_before_the_report_is_skipped(bench: Bench) -> None:
    """In the same commit or in the next: it was built on what did not happen."""
    await bench.submit(append(1, 3))
    count = len(bench.reported)
    bench.store.journal.submit(append(1, 3))
    for number in range(4, 200):
        # Now and then a commit ends in between.
        bench.store.journal.submit(append(number))
        if number % 50 == 0:
            await asyncio.sleep(0)
        if len(bench.reported) > count:
            break
    submitted = number - 2
    await bench.until(count + submitted)
    names = errors(bench.reported[count:])
    assert names == ["RunExists"] + ["AppendSkipped"] * (submitted - 1)


async def test_several_appends_of_a_run_in_one_commit(bench: Bench) -> None:
    """The row shows the last of them."""
    results = await bench.submit(*(append(number) for number in range(1, 50)))
    assert set(errors(results)) == {None}
    run = await bench.store.runs.get(key())
    assert run is not None
    assert run.progress.last_sequence == 49
    assert len(await bench.store.journal.read(key(), 0, MEGABYTE)) == 49


async def test_the_backlog_counts_what_was_not_reported(bench: Bench) -> None:
    """The API refuses new work by it."""
    first, second = append(1), append(2)
    bench.store.journal.submit(first)
    bench.store.journal.submit(second)
    backlog = bench.store.journal.backlog()
    assert backlog == (2, len(first.batch) + len(second.batch))
    assert not backlog.is_full
    await bench.until(2)
    assert bench.store.journal.backlog() == (0, 0)


async def test_a_full_backlog_says_so_and_still_takes_what_comes(bench: Bench) -> None:
    """What runs have begun is written all the same."""
    for number in range(1, MAX_WAITING_APPENDS + 1):
        bench.store.journal.submit(append(number))
    assert bench.store.journal.backlog().is_full
    await bench.until(MAX_WAITING_APPENDS)
    assert not bench.store.journal.backlog().is_full
    assert set(errors(bench.reported)) == {None}


async def test_after_close_nothing_is_taken(bench: Bench) -> None:
    """Submitting still answers."""
    await bench.submit(append(1))
    await bench.store.close()
    (result,) = await bench.submit(append(2))
    assert isinstance(result.error, JournalUnavailable)
    with pytest.raises(JournalUnavailable):
        await bench.store.check_writable()


async def test_close_writes_and_reports_what_was_submitted(bench: Bench) -> None:
    """Nothing that was taken is lost, and closing twice is harmless."""
    for number in range(1, 500):
        bench.store.journal.submit(append(number))
    await bench.store.close()
    assert errors(bench.reported) == [None] * 499
    await bench.store.close()


async def test_a_store_that_works_is_writable(bench: Bench) -> None:
    """Readiness is a write that became durable."""
    await bench.store.check_writable()


# --- Request ids


async def test_a_request_is_stored_with_its_append(bench: Bench) -> None:
    """Both or neither."""
    await bench.submit(append(1, request=request("kept")))
    assert await bench.store.requests.get("default", "StartRun", "kept") == request("kept")
    await bench.submit(append(9, request=request("lost")))
    assert await bench.store.requests.get("default", "StartRun", "lost") is None


async def test_a_used_request_id_gives_its_record(bench: Bench) -> None:
    """Before all else: the run exists by now, and the caller must hear the first response."""
    await bench.submit(append(1, request=request(fingerprint="one")))
    (result,) = await bench.submit(append(1, request=request(fingerprint="two", response=b"2")))
    assert isinstance(result.error, RequestIdReused)
    assert result.error.record == request(fingerprint="one")


async def test_a_request_id_counts_within_one_commit(bench: Bench) -> None:
    """Two callers at the same moment."""
    results = await bench.submit(
        append(1, key=key("a"), request=request()), append(1, key=key("b"), request=request())
    )
    assert errors(results) == [None, "RequestIdReused"]
    assert await bench.store.runs.get(key("b")) is None


async def test_a_request_id_belongs_to_a_method_and_a_namespace(bench: Bench) -> None:
    """The same id elsewhere is another request."""
    results = await bench.submit(
        append(1, request=request()),
        append(2, request=request(method="CancelRun")),
        append(1, key=key(namespace="other"), request=request()),
    )
    assert errors(results) == [None, None, None]


async def test_what_appends_nothing_puts_its_request_by_itself(bench: Bench) -> None:
    """The first one stands."""
    requests = bench.store.requests
    first = request(method="RegisterGraph")
    assert await requests.put("default", first) == first
    assert await requests.put("default", request(method="RegisterGraph", response=b"2")) == first
    assert await requests.get("default", "RegisterGraph", "q1") == first
    assert await requests.get("default", "StartRun", "q1") is None


async def test_old_requests_are_forgotten_in_small_steps(bench: Bench) -> None:
    """The oldest first, and never one that is young enough."""
    requests = bench.store.requests
    for number in range(5):
        await requests.put("default", request(f"q{number}", create_time=Instant(number)))
    assert await requests.forget(Instant(4), 3) == 3
    assert await requests.get("default", "StartRun", "q2") is None
    assert await requests.get("default", "StartRun", "q3") is not None
    assert await requests.forget(Instant(4), 3) == 1
    assert await requests.forget(Instant(4), 3) == 0
    assert await requests.get("default", "StartRun", "q4") is not None


# --- Reading the journal


async def test_reading_begins_with_the_batch_that_holds_the_next_event(bench: Bench) -> None:
    """Batches are returned whole."""
    await bench.submit(append(1, 3), append(4, 4), append(5, 9))
    read = bench.store.journal.read
    assert spans(await read(key(), 0, MEGABYTE)) == [(1, 3), (4, 4), (5, 9)]
    assert spans(await read(key(), 2, MEGABYTE)) == [(1, 3), (4, 4), (5, 9)]
    assert spans(await read(key(), 3, MEGABYTE)) == [(4, 4), (5, 9)]
    assert spans(await read(key(), 4, MEGABYTE)) == [(5, 9)]
    assert spans(await read(key(), 8, MEGABYTE)) == [(5, 9)]
    assert await read(key(), 9, MEGABYTE) == []
    assert await read(key(), 500, MEGABYTE) == []
    assert await read(key("other"), 0, MEGABYTE) == []


async def test_stored_bytes_come_back_as_they_were(bench: Bench) -> None:
    """The journal never looks into a batch."""
    odd = bytes(range(256)) * 40
    await bench.submit(append(1, batch=odd))
    (found,) = await bench.store.journal.read(key(), 0, MEGABYTE)
    assert found.batch == odd
    assert found.position == bench.reported[0].position


async def test_a_read_is_cut_by_size_but_never_empty(bench: Bench) -> None:
    """Progress is certain even if one batch is larger than the limit."""
    await bench.submit(*(append(number, batch=bytes(100)) for number in range(1, 11)))
    read = bench.store.journal.read
    assert spans(await read(key(), 0, 250)) == [(1, 1), (2, 2)]
    assert spans(await read(key(), 2, 300)) == [(3, 3), (4, 4), (5, 5)]
    assert spans(await read(key(), 5, 1)) == [(6, 6)]


async def test_reading_by_position_gives_all_runs_of_a_namespace(bench: Bench) -> None:
    """In the order of commits, from behind a position."""
    await bench.submit(append(1), append(1, key=key("r2")), append(1, key=key("x", "other")))
    await bench.submit(append(2, 4))
    read = bench.store.journal.read_positions
    found = await read("default", 0, MEGABYTE)
    assert [(one.run_id, two.first_sequence) for one, two in found] == [
        ("r1", 1),
        ("r2", 1),
        ("r1", 2),
    ]
    behind = found[1][1].position
    assert [one.run_id for one, _ in await read("default", behind, MEGABYTE)] == ["r1"]
    assert [one.run_id for one, _ in await read("other", 0, MEGABYTE)] == ["x"]
    assert await read("default", bench.store.journal.head_position(), MEGABYTE) == []


async def test_reading_by_position_is_cut_by_size_but_never_empty(bench: Bench) -> None:
    """As reading one run is."""
    await bench.submit(*(append(number, batch=bytes(100)) for number in range(1, 6)))
    found = await bench.store.journal.read_positions("default", 0, 200)
    assert [one.first_sequence for _, one in found] == [1, 2]
    found = await bench.store.journal.read_positions("default", found[-1][1].position, 1)
    assert [one.first_sequence for _, one in found] == [3]


# --- Rows of runs


async def test_the_row_shows_creation_progress_and_ending(bench: Bench) -> None:
    """All of it comes back, and the row is as new as the last durable append."""
    parent = run_pb2.RunParent(run_id="p", task_id="1/n").SerializeToString()
    origin = run_pb2.RunOrigin(run_id="o", sequence=4).SerializeToString()
    made = creation(
        labels={"b": "2", "a": "ü"},
        parent=parent,
        parent_run_id="p",
        root_run_id="root",
        origin=origin,
    )
    progress = RunProgress(
        status=SUSPENDED,
        last_sequence=1,
        iterations=3,
        open_interrupts=2,
        next_due=Instant(77),
        input_tokens=2**40,
        output_tokens=5,
        cached_input_tokens=6,
        reasoning_tokens=7,
    )
    await bench.submit(append(1, creation=made, progress=progress))
    run = await bench.store.runs.get(key())
    assert run is not None
    assert (run.key, run.creation, run.progress, run.ending) == (key(), made, progress, None)
    assert not run.is_final

    ended = ending(
        result=state_pb2.GraphExecutionResult(iterations=3).SerializeToString(),
        failure=failure_pb2.Failure(code="X").SerializeToString(),
    )
    last = RunProgress(status=FAILED, last_sequence=2)
    await bench.submit(append(2, ending=ended, progress=last))
    run = await bench.store.runs.get(key())
    assert run is not None
    assert (run.creation, run.progress, run.ending) == (made, last, ended)
    assert run.is_final
    shown = run.to_run()
    assert (shown.failure.code, shown.result.iterations, shown.parent.task_id) == ("X", 3, "1/n")


async def test_a_run_may_be_created_and_end_in_one_append(bench: Bench) -> None:
    """A graph of one node that the server performs by itself."""
    progress = RunProgress(status=COMPLETED, last_sequence=4)
    await bench.submit(append(1, 4, ending=ending(), progress=progress))
    run = await bench.store.runs.get(key())
    assert run is not None
    assert run.ending == ending()
    assert await bench.store.runs.open_runs(0, 10) == []


async def test_lists_are_newest_first_in_pages(bench: Bench) -> None:
    """By create_time, then run_id; the cursor is the last run of the page before."""
    times = {"a": 5, "b": 9, "c": 9, "d": 1, "e": 9}
    for run_id, time in times.items():
        await bench.submit(
            append(1, key=key(run_id), creation=creation(run_id, create_time=Instant(time)))
        )
    found: list[str] = []
    after = None
    while page := await bench.store.runs.list("default", RunQuery(after=after, limit=2)):
        found += [run.key.run_id for run in page]
        after = (page[-1].creation.create_time, page[-1].key.run_id)
    assert found == ["e", "c", "b", "a", "d"]


LISTED = {
    "one": {"labels": {"env": "prod", "team": "x"}, "create_time": 10},
    "two": {"labels": {"env": "prod"}, "create_time": 20, "graph_digest": "sha256:bb"},
    "kid": {"parent_run_id": "two", "root_run_id": "two", "create_time": 30, "graph_name": ""},
    "end": {"labels": {"env": "test"}, "create_time": 40, "graph_version": 2},
}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["end", "kid", "two", "one"]),
        ({"statuses": frozenset({RUNNING})}, ["two", "one"]),
        ({"statuses": frozenset({COMPLETED})}, ["end"]),
        ({"statuses": frozenset({COMPLETED, SUSPENDED})}, ["end", "kid"]),
        ({"statuses": frozenset({COMPLETED, FAILED})}, ["end"]),
        ({"statuses": frozenset({RUNNING, SUSPENDED})}, ["kid", "two", "one"]),
        ({"graph_digest": "sha256:bb"}, ["two"]),
        ({"graph_name": "g"}, ["end", "two", "one"]),
        ({"graph_name": "g", "graph_version": 2}, ["end"]),
        ({"labels": {"env": "prod"}}, ["two", "one"]),
        ({"labels": {"env": "prod", "team": "x"}}, ["one"]),
        ({"labels": {"team": "x", "env": "test"}}, []),
        ({"labels": {"env": "prod"}, "after": (20, "two")}, ["one"]),
        ({"labels": {"env": "prod"}, "create_min": 20}, ["two"]),
        ({"create_min": 20, "create_max": 40}, ["kid", "two"]),
        ({"roots_only": True}, ["end", "two", "one"]),
        ({"root_run_id": "two"}, ["kid", "two"]),
        ({"roots_only": True, "labels": {"env": "prod"}, "limit": 1}, ["two"]),
    ],
    ids=str,
)
async def test_a_list_has_what_matches_all_that_is_set(
    bench: Bench, query: dict[str, object], expected: list[str]
) -> None:
    """Each filter, alone and together."""
    for run_id, fields in LISTED.items():
        await bench.submit(append(1, key=key(run_id), creation=creation(run_id, **fields)))
    await bench.submit(append(1, key=key("x", "other")))
    suspended = RunProgress(status=SUSPENDED, last_sequence=2)
    completed = RunProgress(status=COMPLETED, last_sequence=2)
    await bench.submit(append(2, key=key("kid"), progress=suspended))
    await bench.submit(append(2, key=key("end"), progress=completed, ending=ending()))
    found = await bench.store.runs.list("default", RunQuery(**query))
    assert [run.key.run_id for run in found] == expected


async def test_open_runs_are_walked_in_pages_over_all_namespaces(bench: Bench) -> None:
    """Recovery reads these and nothing else."""
    for number in range(7):
        await bench.submit(append(1, key=key(f"r{number}", f"n{number % 2}")))
    completed = RunProgress(status=COMPLETED, last_sequence=2)
    await bench.submit(append(2, key=key("r3", "n1"), progress=completed, ending=ending()))
    due = RunProgress(status=SUSPENDED, last_sequence=2, next_due=Instant(5))
    await bench.submit(append(2, key=key("r4", "n0"), progress=due))
    await bench.store.runs.set_quarantined(key("r5", "n1"))
    found = []
    cursor = 0
    while page := await bench.store.runs.open_runs(cursor, 2):
        found += page
        cursor = page[-1].rowid
    assert [one.key.run_id for one in found] == ["r0", "r1", "r2", "r4", "r6"]
    assert (found[3].status, found[3].next_due) == (SUSPENDED, 5)
    assert (found[0].status, found[0].next_due) == (RUNNING, None)


async def test_of_open_runs_it_is_said_whether_a_child_of_theirs_has_ended(bench: Bench) -> None:
    """Recovery asks those whether they have heard of it; a grandchild's end is the business of its own parent."""
    kid = creation("kid", parent_run_id="r1", root_run_id="r1")
    grandkid = creation("grandkid", parent_run_id="kid", root_run_id="r1")
    await bench.submit(
        append(1),
        append(1, key=key("kid"), creation=kid),
        append(1, key=key("grandkid"), creation=grandkid),
        append(1, key=key("alone")),
        # The same ids in another namespace are other runs.
        append(1, key=key("r1", "other")),
    )
    completed = RunProgress(status=COMPLETED, last_sequence=2)

    async def told() -> list[str]:
        rows = await bench.store.runs.open_runs(0, 10)
        return [f"{each.key.namespace}/{each.key.run_id}" for each in rows if each.has_ended_child]

    assert await told() == []
    await bench.submit(append(2, key=key("grandkid"), progress=completed, ending=ending()))
    assert await told() == ["default/kid"]
    await bench.submit(append(2, key=key("kid"), progress=completed, ending=ending()))
    assert await told() == ["default/r1"]


async def test_the_runs_of_a_tree_are_counted(bench: Bench) -> None:
    """Those that have ended included, and its root."""
    kid = creation("kid", parent_run_id="r1", root_run_id="r1")
    completed = RunProgress(status=COMPLETED, last_sequence=2)
    await bench.submit(
        append(1), append(1, key=key("kid"), creation=kid), append(1, key=key("alone"))
    )
    await bench.submit(append(2, key=key("kid"), progress=completed, ending=ending()))
    assert await bench.store.runs.count_tree(key()) == 2
    assert await bench.store.runs.count_tree(key("alone")) == 1
    assert await bench.store.runs.count_tree(key("r1", "other")) == 0


async def test_a_quarantined_run_says_so(bench: Bench) -> None:
    """The mark stays, and marking what does not exist is harmless."""
    await bench.submit(append(1))
    for _ in range(2):
        await bench.store.runs.set_quarantined(key())
    run = await bench.store.runs.get(key())
    assert run is not None
    assert run.quarantined
    assert run.to_run().quarantined
    await bench.store.runs.set_quarantined(key("nobody"))
    assert await bench.store.runs.get(key("nobody")) is None


# --- Questions


async def test_a_question_is_stored_with_its_append_and_replaced_by_a_later_one(
    bench: Bench,
) -> None:
    """The row is as new as the run."""
    await bench.submit(append(1, questions=(question(), question("i2"))))
    assert await bench.store.interrupts.get("default", "i1") == (question(), key())
    answered = question(status=ANSWERED, question=b"answered")
    await bench.submit(append(2, questions=(answered,)))
    assert await bench.store.interrupts.get("default", "i1") == (answered, key())
    assert await bench.store.interrupts.get("default", "i2") == (question("i2"), key())
    assert await bench.store.interrupts.get("other", "i1") is None
    await bench.submit(append(9, questions=(question("i3"),)))
    assert await bench.store.interrupts.get("default", "i3") is None


async def test_a_token_finds_the_question_that_waits_for_it(bench: Bench) -> None:
    """The open one, or else the last one."""
    get = bench.store.interrupts.get_by_token
    old = question("old", external_token="t", status=ANSWERED, open_time=Instant(1))
    new = question("new", external_token="t", status=ANSWERED, open_time=Instant(9))
    live = question("live", external_token="t", open_time=Instant(5))
    await bench.submit(append(1, questions=(old, question("none"))))
    assert await get("default", "t") == (old, key())
    await bench.submit(append(2, questions=(new,)))
    assert await get("default", "t") == (new, key())
    await bench.submit(append(1, key=key("r2"), questions=(live,)))
    assert await get("default", "t") == (live, key("r2"))
    assert await get("other", "t") is None
    assert await get("default", "u") is None


async def test_an_empty_token_finds_nothing(bench: Bench) -> None:
    """Most questions wait for people."""
    await bench.submit(append(1, questions=(question(),)))
    assert await bench.store.interrupts.get_by_token("default", "") is None


async def test_questions_are_listed_oldest_first_in_pages(bench: Bench) -> None:
    """By open_time, then id; by run, by tree and by status."""
    child = creation("kid", parent_run_id="r1", root_run_id="r1")
    await bench.submit(
        append(
            1,
            questions=(
                question("b", open_time=Instant(5)),
                question("a", open_time=Instant(5)),
                question("c", open_time=Instant(1), status=ANSWERED),
            ),
        ),
        append(1, key=key("kid"), creation=child, questions=(question("k", open_time=Instant(3)),)),
        append(1, key=key("alone"), questions=(question("z", open_time=Instant(2)),)),
        append(1, key=key("r1", "other"), questions=(question("y"),)),
    )

    async def ids(*arguments: object) -> list[str]:
        found = await bench.store.interrupts.list("default", *arguments)
        return [row.interrupt_id for row, _ in found]

    assert await ids(None, None, 0, None, 50) == ["c", "z", "k", "a", "b"]
    assert await ids(None, None, OPEN, None, 2) == ["z", "k"]
    assert await ids(None, None, OPEN, (3, "k"), 2) == ["a", "b"]
    assert await ids(None, None, OPEN, (5, "a"), 2) == ["b"]
    assert await ids("r1", None, 0, None, 50) == ["c", "a", "b"]
    assert await ids(None, "r1", OPEN, None, 50) == ["k", "a", "b"]
    assert await ids("kid", "r1", 0, None, 50) == ["k"]


# --- Graphs


async def test_each_new_content_of_a_name_is_a_new_version(bench: Bench) -> None:
    """And the same content again is the version that exists, even an old one."""
    put = bench.store.graphs.put
    first, created = await put("default", "g", "sha256:1", b"one", Instant(1))
    assert (first.name, first.version, first.digest, first.create_time) == ("g", 1, "sha256:1", 1)
    assert created
    second, created = await put("default", "g", "sha256:2", b"two", Instant(2))
    assert (second.version, created) == (2, True)
    again, created = await put("default", "g", "sha256:1", b"one", Instant(3))
    assert (again, created) == (first, False)
    other, created = await put("default", "h", "sha256:1", b"one", Instant(4))
    assert (other.version, created) == (1, True)
    elsewhere, created = await put("other", "g", "sha256:2", b"two", Instant(5))
    assert (elsewhere.version, created) == (1, True)


async def test_a_graph_is_found_by_name_by_version_and_by_digest(bench: Bench) -> None:
    """With its definition."""
    graphs = bench.store.graphs
    first, _ = await graphs.put("default", "g", "sha256:1", b"one", Instant(1))
    second, _ = await graphs.put("default", "g", "sha256:2", b"two", Instant(2))
    await graphs.put("default", "h", "sha256:2", b"two", Instant(3))

    async def get(text: str) -> object:
        return await graphs.get("default", GraphReference.parse(text))

    assert await get("g") == second
    assert await get("g@1") == first
    assert await get("sha256:1") == first
    assert await get("sha256:2") == second
    assert first.definition == b"one"
    for text in ("g@3", "x", "x@1", "sha256:3"):
        assert await get(text) is None
    assert await graphs.get("other", GraphReference(name="g")) is None


async def test_a_graph_without_a_name_is_found_by_digest_only(bench: Bench) -> None:
    """An inline graph: version 0, and in no list."""
    graphs = bench.store.graphs
    put, created = await graphs.put("default", "", "sha256:1", b"one", Instant(1))
    assert (put.name, put.version, created) == ("", 0, True)
    _, created = await graphs.put("default", "", "sha256:1", b"one", Instant(2))
    assert not created
    found = await graphs.get("default", GraphReference(digest="sha256:1"))
    assert found == put
    assert await graphs.list_names("default", "", 10) == []
    # Once it is registered, the name is what it is known by.
    named, created = await graphs.put("default", "g", "sha256:1", b"one", Instant(3))
    assert (named.version, created) == (1, True)
    assert await graphs.get("default", GraphReference(digest="sha256:1")) == named


async def test_names_and_versions_are_listed_in_pages(bench: Bench) -> None:
    """Names by name with their latest version, versions newest first, definitions left out."""
    graphs = bench.store.graphs
    for name, digest in (("b", 1), ("a", 2), ("b", 3), ("c", 4), ("b", 5)):
        await graphs.put("default", name, f"sha256:{digest}", b"x", Instant(digest))
    await graphs.put("other", "z", "sha256:9", b"x", Instant(9))
    names = await graphs.list_names("default", "", 2)
    assert [(one.name, one.version, one.digest) for one in names] == [
        ("a", 1, "sha256:2"),
        ("b", 3, "sha256:5"),
    ]
    assert {one.definition for one in names} == {b""}
    assert [one.name for one in await graphs.list_names("default", "b", 2)] == ["c"]
    versions = await graphs.list_versions("default", "b", None, 2)
    assert [(one.version, one.create_time) for one in versions] == [(3, 5), (2, 3)]
    assert [one.version for one in await graphs.list_versions("default", "b", 2, 2)] == [1]
    assert await graphs.list_versions("default", "x", None, 2) == []


# --- Values


async def pieces(content: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def header(content: bytes, **fields: object) -> value_pb2.StoredValue:
    values: dict[str, object] = {
        "digest": f"sha256:{hashlib.sha256(content).hexdigest()}",
        "size_bytes": len(content),
        "media_type": "image/png",
        "form": value_pb2.VALUE_FORM_BLOB,
    }
    return value_pb2.StoredValue(**(values | fields))


async def read_all(bench: Bench, digest: str, max_bytes: int) -> bytes | None:
    content = b""
    while piece := await bench.store.values.read("default", digest, len(content), max_bytes):
        assert len(piece) <= max_bytes
        content += piece
    return content


@pytest.mark.parametrize("size", [0, 1, VALUE_CHUNK_BYTES, 2 * VALUE_CHUNK_BYTES + 17])
async def test_a_value_comes_back_whole_and_in_part(bench: Bench, size: int) -> None:
    """Whatever the pieces were that it came in."""
    content = bytes(number % 251 for number in range(size))
    values = bench.store.values
    put = await values.put(
        "default", header(content), pieces(content, 70_001), create_time=Instant(1)
    )
    assert put == header(content)
    assert await values.stat("default", put.digest) == put
    assert await read_all(bench, put.digest, 300_000) == content
    assert await values.read("default", put.digest, size, 10) == b""
    assert await values.read("default", put.digest, size + 5_000_000, 10) == b""
    if size > 1:
        middle = await values.read("default", put.digest, size - 2, 10)
        assert content[size - 2 :].startswith(middle or b"?")


async def test_a_digest_that_is_not_given_is_computed(bench: Bench) -> None:
    """For senders that don't want to read the content twice."""
    put = await bench.store.values.put(
        "default", header(b"abc", digest=""), pieces(b"abc", 2), create_time=Instant(1)
    )
    assert put == header(b"abc")


async def test_storing_a_value_again_is_harmless(bench: Bench) -> None:
    """The first form stays what `stat` says; each caller gets its own reference."""
    values = bench.store.values
    for _ in range(2):
        await values.put("default", header(b"abc"), pieces(b"abc", 3), create_time=Instant(1))
    text = header(b"abc", form=value_pb2.VALUE_FORM_TEXT, media_type="")
    assert await values.put("default", text, pieces(b"abc", 3), create_time=Instant(2)) == text
    assert await values.stat("default", text.digest) == header(b"abc")
    assert await values.stat("other", text.digest) is None
    assert await values.read("other", text.digest, 0, 10) is None


@pytest.mark.parametrize(
    ("expected", "what"),
    [
        (header(b"abc", digest=f"sha256:{'0' * 64}"), "digest"),
        (header(b"abc", size_bytes=2), "size"),
        (header(b"abc", size_bytes=4), "size"),
    ],
    ids=["digest", "longer", "shorter"],
)
async def test_a_value_must_be_what_its_header_says(
    bench: Bench, expected: value_pb2.StoredValue, what: str
) -> None:
    """And nothing is stored otherwise."""
    with pytest.raises(ValueMismatch) as caught:
        await bench.store.values.put("default", expected, pieces(b"abc", 1), create_time=Instant(1))
    assert caught.value.what == what
    assert await bench.store.values.stat("default", header(b"abc").digest) is None


async def test_a_value_has_a_largest_size(bench: Bench) -> None:
    """It is refused as soon as it is too large, not at its end."""
    with pytest.raises(ValueTooLarge):
        await bench.store.values.put(
            "default", header(bytes(11)), pieces(bytes(11), 1), create_time=Instant(1), max_bytes=10
        )


async def test_a_value_that_is_cut_off_leaves_nothing(bench: Bench) -> None:
    """The sender broke off."""

    async def broken() -> AsyncIterator[bytes]:
        yield bytes(3 * VALUE_CHUNK_BYTES)
        raise ConnectionError

    content = bytes(4 * VALUE_CHUNK_BYTES)
    with pytest.raises(ConnectionError):
        await bench.store.values.put("default", header(content), broken(), create_time=Instant(1))
    assert await bench.store.values.stat("default", header(content).digest) is None


# --- Starting again


async def test_everything_is_there_after_a_restart(backend: Backend) -> None:
    """Runs go on, positions go on, ids stay used."""
    bench = await Bench(backend.open()).start()
    await bench.submit(
        append(1, 2, request=request(), questions=(question(),)),
        append(1, key=key("r2"), creation=creation("r2", labels={"a": "b"})),
    )
    head = bench.reported[-1].position
    await bench.store.runs.set_quarantined(key("r2"))
    graph, _ = await bench.store.graphs.put("default", "g", "sha256:1", b"one", Instant(1))
    value = header(b"abc")
    await bench.store.values.put("default", value, pieces(b"abc", 3), create_time=Instant(1))
    before = [await bench.store.runs.get(key(run_id)) for run_id in ("r1", "r2")]
    await bench.store.close()

    again = await Bench(backend.open()).start()
    store = again.store
    assert [await store.runs.get(key(run_id)) for run_id in ("r1", "r2")] == before
    assert store.journal.head_position() >= head
    assert await store.interrupts.get("default", "i1") == (question(), key())
    assert await store.requests.get("default", "StartRun", "q1") == request()
    assert await store.graphs.get("default", GraphReference(name="g")) == graph
    assert await store.values.stat("default", value.digest) == value
    assert await store.values.read("default", value.digest, 0, 9) == b"abc"
    results = await again.submit(
        append(3), append(1, key=key("r2")), append(1, key=key("r3"), request=request())
    )
    assert errors(results) == [None, "RunExists", "RequestIdReused"]
    assert results[0].position > head
    batches = await store.journal.read(key(), 0, MEGABYTE)
    assert [event_pb2.EventBatch.FromString(one.batch).events[0].sequence for one in batches] == [
        1,
        3,
    ]
    await store.close()
