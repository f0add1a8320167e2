"""Questions in SQLite. They are written by the group writer only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from stepgraph.v1 import interrupt_pb2
from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.records import QuestionRow, RunKey
from stepgraph_server.storage.sqlite.queries import QUERIES

if TYPE_CHECKING:
    from stepgraph_server.storage.sqlite.readers import Readers

_Row: TypeAlias = tuple[str, int, int, str, bytes, str, str]
_LIST: Final = "SELECT interrupt_id, status, open_time, external_token, question, namespace, run_id FROM questions WHERE "


class SqliteInterrupts:
    """See Interrupts."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def get(self, namespace: str, interrupt_id: str) -> tuple[QuestionRow, RunKey] | None:
        """See Interrupts."""
        arguments = {"namespace": namespace, "interrupt_id": interrupt_id}
        row = await self._readers.run(
            lambda connection: connection.execute(QUERIES["question_by_id"], arguments).fetchone()
        )
        return _question(row) if row else None

    async def get_by_token(
        self, namespace: str, external_token: str
    ) -> tuple[QuestionRow, RunKey] | None:
        """See Interrupts."""
        arguments = {
            "namespace": namespace,
            "external_token": external_token,
            "open_status": interrupt_pb2.INTERRUPT_STATUS_OPEN,
        }
        row = await self._readers.run(
            lambda connection: connection.execute(
                QUERIES["question_by_token"], arguments
            ).fetchone()
        )
        return _question(row) if row else None

    async def list(
        self,
        namespace: str,
        run_id: str | None,
        root_run_id: str | None,
        status: int,
        after: tuple[Instant, str] | None,
        limit: int,
    ) -> list[tuple[QuestionRow, RunKey]]:
        """See Interrupts."""
        wanted: list[tuple[str, tuple[object, ...]]] = [("namespace = ?", (namespace,))]
        if run_id is not None:
            wanted.append(("run_id = ?", (run_id,)))
        if root_run_id is not None:
            wanted.append(("root_run_id = ?", (root_run_id,)))
        if status:
            wanted.append(("status = ?", (status,)))
        if after is not None:
            wanted.append(("(open_time, interrupt_id) > (?, ?)", after))
        text = (
            _LIST
            + " AND ".join(condition for condition, _ in wanted)
            + " ORDER BY open_time, interrupt_id LIMIT ?"
        )
        values = [value for _, bound in wanted for value in bound]
        rows = await self._readers.run(
            lambda connection: connection.execute(text, [*values, limit]).fetchall()
        )
        return [_question(row) for row in rows]


def _question(row: _Row) -> tuple[QuestionRow, RunKey]:
    interrupt_id, status, open_time, external_token, question, namespace, run_id = row
    found = QuestionRow(
        interrupt_id=interrupt_id,
        status=status,
        open_time=Instant(open_time),
        external_token=external_token,
        question=question,
    )
    return found, RunKey(namespace, run_id)
