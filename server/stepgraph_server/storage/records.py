"""What is stored, as plain slotted objects around opaque bytes.

Rules: nothing here looks into bytes that it carries, with one exception, `RunRecord.to_run`. Classes of the hot path are
mutable on purpose: a frozen dataclass takes three times as long to build. Nobody changes one after handing it over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from stepgraph.v1 import run_pb2
from stepgraph_server.core.instants import Instant, to_timestamp
from stepgraph_server.storage.keys import RequestRecord, RunKey

if TYPE_CHECKING:
    from stepgraph_server.storage.errors import StorageError

FIRST_FINAL_STATUS = run_pb2.RUN_STATUS_COMPLETED
"""Statuses from here on are final; see RunStatus in the schema."""


@dataclass(slots=True, kw_only=True)
class RunCreation:
    """What is known of a run when it is created and never changes.

    `parent` is a serialized RunParent and `origin` a serialized RunOrigin, or empty. `parent_run_id` is empty for a
    root, whose `root_run_id` is its own id. `graph_name` is empty and `graph_version` 0 for an inline graph.
    """

    graph_digest: str
    graph_name: str = ""
    graph_version: int = 0
    labels: dict[str, str] = field(default_factory=dict)
    create_time: Instant
    parent: bytes = b""
    parent_run_id: str = ""
    root_run_id: str
    origin: bytes = b""


class RunProgress(NamedTuple):
    """How far a run is: what its row shows, and what recovery and timers need without reading its journal.

    `status` is a number of RunStatus. `next_due` is the next instant at which something happens by itself. There is one
    with each append, so it is a tuple: its fields are the columns of the row, in this order, and are not copied on the way.
    """

    status: int
    last_sequence: int
    iterations: int = 0
    open_interrupts: int = 0
    next_due: Instant | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class RunEnding:
    """How a run ended: a serialized GraphExecutionResult, and a serialized Failure or nothing."""

    end_time: Instant
    result: bytes
    failure: bytes = b""


@dataclass(slots=True, kw_only=True)
class QuestionRow:
    """A question of a run: `question` is a serialized Interrupt, the rest is what it is found by.

    `status` is a number of InterruptStatus. `external_token` is empty unless it waits for another system.
    """

    interrupt_id: str
    status: int
    open_time: Instant
    external_token: str = ""
    question: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """What a run begins with of another run: its appends up to an event that ends one of them."""

    source: RunKey
    last_sequence: int


@dataclass(slots=True, kw_only=True)
class Append:
    """One step of a run: its next events as a serialized EventBatch, and all that must become true with them.

    `creation` is there exactly if `first_sequence` is 1, or follows a `prefix`, which is copied before it in the same
    transaction; `ending` exactly if the run is final after this step.
    `progress.last_sequence` equals `last_sequence`. `context` is the caller's own and comes back untouched.
    """

    key: RunKey
    first_sequence: int
    last_sequence: int
    batch: bytes
    progress: RunProgress
    creation: RunCreation | None = None
    prefix: Prefix | None = None
    ending: RunEnding | None = None
    request: RequestRecord | None = None
    questions: tuple[QuestionRow, ...] = ()
    context: object = None


@dataclass(slots=True, kw_only=True)
class Appended:
    """What became of an append. With an `error` nothing of it is stored, and `position` is 0.

    Positions are those of a whole store: they rise in the order of commits, and may have gaps.
    """

    append: Append
    position: int
    error: StorageError | None = None


@dataclass(slots=True, kw_only=True)
class StoredBatch:
    """One append as the journal keeps it."""

    first_sequence: int
    last_sequence: int
    position: int
    batch: bytes


@dataclass(slots=True, kw_only=True)
class OpenRun:
    """A run that is neither final nor quarantined, as recovery sees it. `rowid` is the cursor of the next page."""

    rowid: int
    key: RunKey
    status: int
    next_due: Instant | None
    #: A child run of its has ended, and it may not have heard of that.
    has_ended_child: bool


@dataclass(slots=True, kw_only=True)
class RunRecord:
    """The row of a run. `ending` is absent while it lives."""

    key: RunKey
    creation: RunCreation
    progress: RunProgress
    ending: RunEnding | None = None
    quarantined: bool = False

    @property
    def is_final(self) -> bool:
        """Whether nothing can follow."""
        return self.progress.status >= FIRST_FINAL_STATUS

    def to_run(self) -> run_pb2.Run:
        """Return the row as callers see it. Its graph has no create_time: the run does not keep it."""
        creation, progress = self.creation, self.progress
        run = run_pb2.Run(
            run_id=self.key.run_id,
            namespace=self.key.namespace,
            graph=run_pb2.GraphVersion(
                name=creation.graph_name,
                version=creation.graph_version,
                digest=creation.graph_digest,
            ),
            # Protobuf enums are open: a number of a newer server passes through as it is.
            status=cast("run_pb2.RunStatus.ValueType", progress.status),
            labels=creation.labels,
            create_time=to_timestamp(creation.create_time),
            last_sequence=progress.last_sequence,
            iterations=progress.iterations,
            open_interrupts=progress.open_interrupts,
            root_run_id=creation.root_run_id,
            quarantined=self.quarantined,
        )
        run.usage.input_tokens = progress.input_tokens
        run.usage.output_tokens = progress.output_tokens
        run.usage.cached_input_tokens = progress.cached_input_tokens
        run.usage.reasoning_tokens = progress.reasoning_tokens
        self._add_optional_fields(run)
        return run

    def _add_optional_fields(self, run: run_pb2.Run) -> None:
        """Set what is absent, not empty, where there is nothing."""
        if self.creation.parent:
            run.parent.ParseFromString(self.creation.parent)
        if self.creation.origin:
            run.origin.ParseFromString(self.creation.origin)
        if self.progress.next_due is not None:
            run.next_due_time.CopyFrom(to_timestamp(self.progress.next_due))
        if self.ending is None:
            return
        run.end_time.CopyFrom(to_timestamp(self.ending.end_time))
        run.result.ParseFromString(self.ending.result)
        # Empty bytes are also what an empty message looks like; parsing sets presence, which a result must have.
        run.result.SetInParent()
        if self.ending.failure:
            run.failure.ParseFromString(self.ending.failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphVersionRecord:
    """A stored graph: `definition` is a serialized StateGraph, empty where a list leaves it out.

    `name` is empty and `version` 0 for a graph that is stored by its digest only.
    """

    name: str
    version: int
    digest: str
    create_time: Instant
    definition: bytes = b""


__all__ = [
    "FIRST_FINAL_STATUS",
    "Append",
    "Appended",
    "GraphVersionRecord",
    "OpenRun",
    "Prefix",
    "QuestionRow",
    "RequestRecord",
    "RunCreation",
    "RunEnding",
    "RunKey",
    "RunProgress",
    "RunRecord",
    "StoredBatch",
]
