"""The rows of runs in SQLite."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.records import (
    FIRST_FINAL_STATUS,
    OpenRun,
    RunCreation,
    RunEnding,
    RunKey,
    RunProgress,
    RunRecord,
)
from stepgraph_server.storage.sqlite.queries import QUERIES

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from stepgraph_server.storage.runs import RunQuery
    from stepgraph_server.storage.sqlite.readers import Readers
    from stepgraph_server.storage.sqlite.writer import Writer

_COLUMNS: Final = ", ".join(
    f"r.{column}"
    for column in (
        *("namespace", "run_id", "quarantined"),
        *("status", "last_sequence", "iterations", "open_interrupts", "next_due"),
        *("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"),
        *("create_time", "graph_digest", "graph_name", "graph_version"),
        *("parent_run_id", "root_run_id", "labels", "parent", "origin"),
        *("final_status", "end_time", "result", "failure"),
    )
)
# The types are those of the schema, whose tables are strict.
_ProgressRow: TypeAlias = tuple[int, int, int, int, "int | None", int, int, int, int]
_CreationRow: TypeAlias = tuple[int, str, str, int, str, str, str, bytes, bytes]
_EndingRow: TypeAlias = tuple["int | None", "int | None", "bytes | None", "bytes | None"]
_Row: TypeAlias = tuple[str, str, int, *_ProgressRow, *_CreationRow, *_EndingRow]
_GET: Final = f"SELECT {_COLUMNS} FROM runs r WHERE r.namespace = ? AND r.run_id = ?"  # noqa: S608 constants only


class SqliteRuns:
    """See Runs."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def get(self, key: RunKey) -> RunRecord | None:
        """See Runs."""
        row = await self._readers.run(lambda connection: connection.execute(_GET, key).fetchone())
        return record_of_row(row) if row else None

    async def open_runs(self, after_rowid: int, limit: int) -> list[OpenRun]:
        """See Runs."""
        arguments = {"after_rowid": after_rowid, "limit": limit}
        rows = await self._readers.run(
            lambda connection: connection.execute(QUERIES["open_runs"], arguments).fetchall()
        )
        return [
            OpenRun(
                rowid=rowid,
                key=RunKey(namespace, run_id),
                status=status,
                next_due=next_due,
                has_ended_child=bool(has_ended_child),
            )
            for rowid, namespace, run_id, status, next_due, has_ended_child in rows
        ]

    async def count_tree(self, root: RunKey) -> int:
        """See Runs."""
        arguments = {"namespace": root.namespace, "run_id": root.run_id}
        [count] = await self._readers.run(
            lambda connection: connection.execute(QUERIES["count_tree"], arguments).fetchone()
        )
        return int(count)

    async def set_quarantined(self, key: RunKey) -> None:
        """See Runs."""
        arguments = {"namespace": key.namespace, "run_id": key.run_id}
        await self._writer.run(
            lambda connection: connection.execute(QUERIES["set_quarantined"], arguments)
        )

    async def list(self, namespace: str, query: RunQuery) -> list[RunRecord]:
        """See Runs."""
        text, values = list_statement(namespace, query)

        def read(connection: sqlite3.Connection) -> list[RunRecord]:
            return [record_of_row(row) for row in connection.execute(text, values)]

        return await self._readers.run(read)


@dataclass(slots=True)
class _Statement:
    """A list of runs that is put together from constant pieces; values are bound. `place` is what the order goes by."""

    place: str
    conditions: list[str] = field(default_factory=list)
    values: list[object] = field(default_factory=list)

    def where(self, condition: str, *values: object) -> None:
        self.conditions.append(condition)
        self.values += values


def list_statement(namespace: str, query: RunQuery) -> tuple[str, list[object]]:
    """Return the statement that lists runs, and its values.

    With labels, the index of labels is walked in the order of the answer and leads to the runs: few runs have the rarest
    of them, and without it a search would read every run there is. Otherwise the planner chooses an index of `runs`.
    """
    labels = list(query.labels.items())
    statement = _Statement(place="l0" if labels else "r")
    source = "runs r"
    if labels:
        source = (
            "run_labels l0 CROSS JOIN runs r ON r.namespace = l0.namespace AND r.run_id = l0.run_id"
        )
        statement.where("l0.namespace = ? AND l0.name = ? AND l0.value = ?", namespace, *labels[0])
    else:
        statement.where("r.namespace = ?", namespace)
    for name, value in labels[1:]:
        statement.where(
            "EXISTS (SELECT 1 FROM run_labels l WHERE l.namespace = r.namespace AND l.name = ?"
            " AND l.value = ? AND l.create_time = r.create_time AND l.run_id = r.run_id)",
            name,
            value,
        )
    _add_statuses(statement, sorted(query.statuses))
    for condition, wanted in _simple_conditions(query, statement.place):
        statement.where(condition, *wanted)
    place = statement.place
    text = (
        f"SELECT {_COLUMNS} FROM {source} WHERE {' AND '.join(statement.conditions)}"  # noqa: S608 constants only
        f" ORDER BY {place}.create_time DESC, {place}.run_id DESC LIMIT ?"
    )
    return text, [*statement.values, query.limit]


def _add_statuses(statement: _Statement, statuses: list[int]) -> None:
    if not statuses:
        return
    marks = ", ".join("?" * len(statuses))
    statement.where(f"r.status IN ({marks})", *statuses)
    # Says the same again in the columns that have an index.
    if all(status < FIRST_FINAL_STATUS for status in statuses):
        statement.where("r.final_status IS NULL")
    elif all(status >= FIRST_FINAL_STATUS for status in statuses):
        statement.where(f"r.final_status IN ({marks})", *statuses)


def _simple_conditions(query: RunQuery, place: str) -> Iterator[tuple[str, tuple[object, ...]]]:
    if query.graph_digest:
        yield "r.graph_digest = ?", (query.graph_digest,)
    if query.graph_name:
        yield "r.graph_name = ? AND r.graph_name <> ''", (query.graph_name,)
        if query.graph_version:
            yield "r.graph_version = ?", (query.graph_version,)
    if query.create_min is not None:
        yield f"{place}.create_time >= ?", (query.create_min,)
    if query.create_max is not None:
        yield f"{place}.create_time < ?", (query.create_max,)
    if query.roots_only:
        yield "r.parent_run_id = ''", ()
    if query.root_run_id:
        yield "r.root_run_id = ?", (query.root_run_id,)
    if query.after is not None:
        yield f"({place}.create_time, {place}.run_id) < (?, ?)", query.after


def record_of_row(row: _Row) -> RunRecord:
    """Return the record of a row of `_COLUMNS`."""
    identity, progress, creation, ending = row[:3], row[3:12], row[12:21], row[21:]
    return RunRecord(
        key=RunKey(identity[0], identity[1]),
        creation=_creation_of(creation),
        progress=_progress_of(progress),
        ending=_ending_of(ending),
        quarantined=bool(identity[2]),
    )


def _progress_of(row: _ProgressRow) -> RunProgress:
    status, last_sequence, iterations, open_interrupts, next_due, *tokens = row
    return RunProgress(
        status=status,
        last_sequence=last_sequence,
        iterations=iterations,
        open_interrupts=open_interrupts,
        next_due=None if next_due is None else Instant(next_due),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        cached_input_tokens=tokens[2],
        reasoning_tokens=tokens[3],
    )


def _creation_of(row: _CreationRow) -> RunCreation:
    create_time, digest, name, version, parent_run_id, root_run_id, labels, parent, origin = row
    return RunCreation(
        create_time=Instant(create_time),
        graph_digest=digest,
        graph_name=name,
        graph_version=version,
        parent_run_id=parent_run_id,
        root_run_id=root_run_id,
        labels=json.loads(labels),
        parent=parent,
        origin=origin,
    )


def _ending_of(row: _EndingRow) -> RunEnding | None:
    final_status, end_time, result, failure = row
    if final_status is None:
        return None
    assert end_time is not None
    assert result is not None
    return RunEnding(end_time=Instant(end_time), result=result, failure=failure or b"")
