"""Writes a group of appends in one transaction.

Rules: runs in the writer's thread. Whether an append fits is decided from what this connection has read or written inside the
transaction, before anything is written: savepoints per append would cost more than the appends. Only when SQLite itself
refuses a row, which no rule foresaw, is the group taken apart and tried one by one.
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final

from stepgraph_server.storage.admission import prefix_missing, refusal
from stepgraph_server.storage.errors import AppendInvalid, AppendSkipped
from stepgraph_server.storage.records import Append, Appended
from stepgraph_server.storage.sqlite.connection import unavailable
from stepgraph_server.storage.sqlite.queries import QUERIES
from stepgraph_server.storage.sqlite.request_rows import request_of_row, request_row
from stepgraph_server.telemetry import names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from stepgraph_server.storage.errors import StorageError
    from stepgraph_server.storage.records import (
        Prefix,
        RequestRecord,
        RunCreation,
        RunEnding,
        RunKey,
        RunProgress,
    )

_log = logging.getLogger(__name__)

KNOWN_RUNS: Final = 65_536
"""Of so many runs the writer remembers where they end; of others it reads their row first. About 20 MiB."""

ROWS_AT_ONCE: Final = 48
"""The most rows of one statement. There is a text for each number up to it, and SQLite's module keeps 128 compiled."""

_VALUES: Final = re.compile(r"\((?:\?, )*\?\)")

#: What is said of a row that can't be stored, by SQLite, its adapter or us: of the data, not of the disk.
_REFUSED_ROW: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    AttributeError,
    OverflowError,
    TypeError,
    ValueError,
)

_FIND_RUN = QUERIES["find_run"]
_FIND_REQUEST = QUERIES["find_request"]
_INSERT_BATCH = QUERIES["insert_batch"]
_UPDATE_PROGRESS = QUERIES["update_progress"]


@dataclass(slots=True)
class _KnownRun:
    """What the writer must know of a run to judge and to place an append."""

    run_key: int
    last_sequence: int
    root_run_id: str


@dataclass(slots=True)
class _Plan:
    """The rows of a group. `progress` has the last one of each run, as columns; a run that is new has its row in `created`."""

    results: list[Appended] = field(default_factory=list)
    batches: list[tuple[int, int, int, int, bytes]] = field(default_factory=list)
    progress: dict[int, RunProgress] = field(default_factory=dict)
    created: dict[int, tuple[RunKey, RunCreation]] = field(default_factory=dict)
    endings: list[tuple[int, Append, RunEnding]] = field(default_factory=list)
    questions: list[tuple[_KnownRun, Append]] = field(default_factory=list)
    requests: dict[tuple[str, str, str], RequestRecord] = field(default_factory=dict)
    copies: list[tuple[tuple[int, int, int, int], Prefix]] = field(default_factory=list)
    failed: set[RunKey] = field(default_factory=set)

    def add(self, append: Append, known: _KnownRun, position: int) -> None:
        """Add the rows of an append that fits."""
        run_key = known.run_key
        self.batches.append(
            (position, run_key, append.first_sequence, append.last_sequence, append.batch)
        )
        self.progress[run_key] = append.progress
        if append.ending is not None:
            self.endings.append((run_key, append, append.ending))
        if append.questions:
            self.questions.append((known, append))
        if append.request is not None:
            self.requests[_request_place(append, append.request)] = append.request


class GroupWriter:
    """Owns what the writer knows of the store beyond its rows. One per connection that writes."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._known: OrderedDict[RunKey, _KnownRun] = OrderedDict()
        # By run, the failure that the caller has not heard of yet; see Journal.submit.
        self._doubted: dict[RunKey, Appended] = {}
        self._is_failing = False
        self._position, self._run_key = connection.execute(QUERIES["counters"]).fetchone()
        self.head_position: int = self._position
        """The last position that is durable. Read from other threads; setting an int is atomic."""

    def write(self, group: list[Append]) -> list[Appended]:
        """Store what can be stored, and return what became of each, in order. Never raises for what SQLite says."""
        try:
            results = self._write_together(group)
        except _REFUSED_ROW as error:
            self._forget_uncommitted()
            if len(group) > 1:
                return [result for append in group for result in self.write([append])]
            return self.fail(group, AppendInvalid(group[0].key, str(error)))
        except sqlite3.Error as error:
            self._forget_uncommitted()
            failure = unavailable(self._path, error)
            if not self._is_failing:
                # Callers hear no path, and each of thousands hears it again: the log says it once, whole.
                _log.error(
                    "Appends can't be written",
                    extra={"action": names.JOURNAL_FAILED, "cause": str(failure)},
                )
            self._is_failing = True
            return self.fail(group, failure)
        self._is_failing = False
        return results

    def fail(self, group: list[Append], error: StorageError) -> list[Appended]:
        """Return that nothing of a group is stored, for one reason."""
        skipped = {append.key for append in group if append.key in self._doubted}
        results = []
        for append in group:
            key = append.key
            reason = AppendSkipped(key) if key in skipped else error
            result = Appended(append=append, position=0, error=reason)
            results.append(result)
            self._doubted.setdefault(key, result)
        return results

    def forgive(self, failure: Appended) -> None:
        """Look at appends of a run again: its caller has heard of the failure, and of none since."""
        key = failure.append.key
        if self._doubted.get(key) is failure:
            del self._doubted[key]

    def _write_together(self, group: list[Append]) -> list[Appended]:
        self._connection.execute("BEGIN IMMEDIATE")
        plan = _Plan()
        for append in group:
            plan.results.append(self._place(append, plan))
        self._write_rows(plan)
        self._commit()
        self.head_position = self._position
        # After the commit, so that a group that is tried again one by one starts without doubts of its first try.
        for result in plan.results:
            if result.error is not None and not isinstance(result.error, AppendSkipped):
                self._doubted[result.append.key] = result
        while len(self._known) > KNOWN_RUNS:
            self._known.popitem(last=False)
        return plan.results

    def _commit(self) -> None:
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            # Some failures leave the transaction open; ending it makes sure that it is not stored. Others come when
            # the commit is in the log already: then it is stored, and to say otherwise would be wrong for ever.
            if self._connection.in_transaction:
                raise
            stored = self._connection.execute(QUERIES["is_stored"], (self._position,)).fetchone()
            if stored is None:
                raise

    def _place(self, append: Append, plan: _Plan) -> Appended:
        """Judge an append, and put its rows into the plan if it fits."""
        key = append.key
        if key in plan.failed or key in self._doubted:
            return Appended(append=append, position=0, error=AppendSkipped(key))
        known = self._find(key)
        request = self._used_request(append, plan) if append.request else None
        error = refusal(append, known.last_sequence if known else 0, request)
        if error is not None:
            plan.failed.add(key)
            return Appended(append=append, position=0, error=error)
        if known is None:
            source = self._find(append.prefix.source) if append.prefix is not None else None
            known = self._create(append, plan)
            if append.prefix is not None:
                self._copy(append.prefix, source, known, plan)
        self._position += 1
        known.last_sequence = append.last_sequence
        plan.add(append, known, self._position)
        return Appended(append=append, position=self._position)

    def _find(self, key: RunKey) -> _KnownRun | None:
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        row = self._connection.execute(_FIND_RUN, key).fetchone()
        if row is None:
            return None
        known = self._known[key] = _KnownRun(*row)
        return known

    def _create(self, append: Append, plan: _Plan) -> _KnownRun:
        assert append.creation is not None, "admission lets only a first append create"
        self._run_key += 1
        known = _KnownRun(self._run_key, 0, append.creation.root_run_id)
        self._known[append.key] = known
        plan.created[known.run_key] = (append.key, append.creation)
        return known

    def _copy(
        self, prefix: Prefix, source: _KnownRun | None, known: _KnownRun, plan: _Plan
    ) -> None:
        """Let a run begin with the appends of another. Raises ValueError, like SQLite for a row that it refuses."""
        # As many positions as events are more than enough for the appends; they may have gaps.
        place = (
            known.run_key,
            self._position,
            source.run_key if source else 0,
            prefix.last_sequence,
        )
        plan.copies.append((place, prefix))
        self._position += prefix.last_sequence

    def _used_request(self, append: Append, plan: _Plan) -> RequestRecord | None:
        assert append.request is not None
        place = _request_place(append, append.request)
        if place in plan.requests:
            return plan.requests[place]
        row = self._connection.execute(_FIND_REQUEST, place).fetchone()
        return request_of_row(row) if row else None

    def _write_rows(self, plan: _Plan) -> None:
        many = self._connection.executemany
        # Most groups are nothing but batches of runs that exist, so the rest is looked at only if there is any.
        if plan.created:
            many(QUERIES["insert_run"], _run_rows(plan))
            many(QUERIES["insert_label"], _label_rows(plan))
        for place, prefix in plan.copies:
            self._connection.execute(QUERIES["copy_batches"], place)
            last = self._connection.execute(QUERIES["last_of_run"], place[:1]).fetchone()[0]
            if last != prefix.last_sequence:
                raise ValueError(prefix_missing(prefix))
        self._at_once(_INSERT_BATCH, plan.batches)
        self._at_once(
            _UPDATE_PROGRESS,
            [
                (*progress, run_key)
                for run_key, progress in plan.progress.items()
                if run_key not in plan.created
            ],
        )
        if plan.endings:
            many(QUERIES["update_ending"], _ending_rows(plan))
        if plan.questions:
            many(QUERIES["upsert_question"], _question_rows(plan))
        if plan.requests:
            many(
                QUERIES["insert_request"],
                [request_row(place[0], record) for place, record in plan.requests.items()],
            )

    def _at_once(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Run a statement with one list of values for many rows, as few times as may be.

        `executemany` gives the interpreter's lock away at every row, and has to wait for it again while the loop decides
        what runs do next, up to a switch interval each time. `Writer.submit` has what was measured.
        """
        for start in range(0, len(rows), ROWS_AT_ONCE):
            some = rows[start : start + ROWS_AT_ONCE]
            self._connection.execute(_widened(statement, len(some)), [*chain.from_iterable(some)])

    def _forget_uncommitted(self) -> None:
        # A disk that fails may fail this too; then the next BEGIN fails, and this is tried again.
        with suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        # It has moved with appends that are not stored. Positions and run keys may have gaps and are not taken back.
        self._known.clear()


@cache
def _widened(statement: str, rows: int) -> str:
    """Return a statement for so many rows: the list of its question marks is repeated."""
    return _VALUES.sub(lambda found: ", ".join([found[0]] * rows), statement, count=1)


def _request_place(append: Append, request: RequestRecord) -> tuple[str, str, str]:
    return append.key.namespace, request.method, request.request_id


def _run_rows(plan: _Plan) -> Iterator[tuple[object, ...]]:
    for run_key, (key, creation) in plan.created.items():
        yield (
            run_key,
            *key,
            *plan.progress[run_key],
            creation.create_time,
            creation.graph_digest,
            creation.graph_name,
            creation.graph_version,
            creation.parent_run_id,
            creation.root_run_id,
            json.dumps(creation.labels, sort_keys=True),
            creation.parent,
            creation.origin,
        )


def _label_rows(plan: _Plan) -> Iterator[tuple[str, str, str, int, str]]:
    for key, creation in plan.created.values():
        for name, value in creation.labels.items():
            yield key.namespace, name, value, creation.create_time, key.run_id


def _ending_rows(plan: _Plan) -> Iterator[tuple[int, int, bytes, bytes, int]]:
    for run_key, append, ending in plan.endings:
        yield append.progress.status, ending.end_time, ending.result, ending.failure, run_key


def _question_rows(plan: _Plan) -> Iterator[tuple[object, ...]]:
    for known, append in plan.questions:
        for row in append.questions:
            yield (
                append.key.namespace,
                row.interrupt_id,
                append.key.run_id,
                known.root_run_id,
                row.status,
                row.open_time,
                row.external_token,
                row.question,
            )
