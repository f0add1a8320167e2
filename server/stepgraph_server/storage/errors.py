"""What can go wrong with a store: one class per decision that a caller can take.

Rules: messages name the file, the user and the remedy, because an operator reads them at the worst time. None of these
reaches a client as it is: what a client hears is decided in `api/errors.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.errors import StepgraphError

if TYPE_CHECKING:
    from stepgraph_server.storage.keys import RequestRecord, RunKey


class StorageError(StepgraphError):
    """The root of what stores raise or report."""


class SequenceConflict(StorageError):
    """An append does not carry on where its run ends. A fault of the caller, or another one wrote in between: reload.

    `last_sequence` is where the run ends in the store; 0 means that there is no such run.
    """

    def __init__(self, key: RunKey, first_sequence: int, last_sequence: int) -> None:
        super().__init__(
            f"run {key.namespace}/{key.run_id} ends at event {last_sequence}; "
            f"an append that begins with {first_sequence} does not carry on there"
        )
        self.key = key
        self.first_sequence = first_sequence
        self.last_sequence = last_sequence


class RunExists(StorageError):
    """An append would create a run that exists. Expected: two callers chose one id, or one repeats itself."""

    def __init__(self, key: RunKey) -> None:
        super().__init__(f"run {key.namespace}/{key.run_id} exists")
        self.key = key


class RequestIdReused(StorageError):
    """The request id was used before; `record` is what it was used for. Expected: compare the fingerprints.

    Equal: a repetition, whose answer is `record.response`. Otherwise the caller used one id for two requests.
    """

    def __init__(self, record: RequestRecord) -> None:
        super().__init__(f"request id {record.request_id} of {record.method} was used before")
        self.record = record


class AppendSkipped(StorageError):
    """An append of a run was not looked at, because an earlier one of that run failed. Follow that one's error."""

    def __init__(self, key: RunKey) -> None:
        super().__init__(
            f"an earlier append of run {key.namespace}/{key.run_id} failed; this one was built on it"
        )
        self.key = key


class AppendInvalid(StorageError):
    """An append can't be stored at all: it breaks the contract of Append. A fault of the caller; trying again is no use."""

    def __init__(self, key: RunKey, cause_text: str) -> None:
        super().__init__(
            f"an append of run {key.namespace}/{key.run_id} can't be stored: {cause_text}"
        )
        self.key = key
        self.cause_text = cause_text


class JournalUnavailable(StorageError):
    """The store could not be used just now: its disk is full or broken, or it is closed. Nothing was stored; try later.

    `remedy` says what an operator can do about it.
    """

    def __init__(self, path: str, cause_text: str, remedy: str) -> None:
        super().__init__(f"can't use {path}: {cause_text}. {remedy}")
        self.path = path
        self.cause_text = cause_text
        self.remedy = remedy


class StoreUnusable(StorageError):
    """The store can't be opened. Needs an operator: the message names the path, what is wrong and what to do."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(f"can't open {path}: {problem}. {remedy}")
        self.path = path
        self.problem = problem
        self.remedy = remedy


class StoreInUse(StoreUnusable):
    """Another process has the store. `holder` is its process id, 0 if it could not be read."""

    def __init__(self, path: str, lock_path: str, holder: int) -> None:
        who = f"process {holder}" if holder else "another process"
        super().__init__(
            path,
            f"{who} uses it (it holds the lock file {lock_path})",
            "Stop that server first, or give this one a database file of its own",
        )
        self.lock_path = lock_path
        self.holder = holder


class StoreTooNew(StoreUnusable):
    """A newer server wrote the store. `found` is its version, `known` the newest that this server can read."""

    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            path,
            f"its schema has version {found}, and this server knows versions up to {known}",
            "Start the newer server again; going back needs the backup from before the upgrade",
        )
        self.found = found
        self.known = known


class ValueMismatch(StorageError):
    """A content is not what its header says. Expected; the sender must mend it, and nothing was stored."""

    def __init__(self, *, what: str, expected: str, actual: str) -> None:
        super().__init__(f"the {what} of the content is {actual}, and its header says {expected}")
        self.what = what
        self.expected = expected
        self.actual = actual


class ValueTooLarge(StorageError):
    """A content is larger than a stored value may be. Expected; nothing was stored.

    `size_bytes` is what its header says, or what has come so far if that is more.
    """

    def __init__(self, limit_bytes: int, size_bytes: int) -> None:
        super().__init__(
            f"a stored value has at most {limit_bytes} bytes, and this one has {size_bytes}"
        )
        self.limit_bytes = limit_bytes
        self.size_bytes = size_bytes


__all__ = [
    "AppendInvalid",
    "AppendSkipped",
    "JournalUnavailable",
    "RequestIdReused",
    "RunExists",
    "SequenceConflict",
    "StorageError",
    "StoreInUse",
    "StoreTooNew",
    "StoreUnusable",
    "ValueMismatch",
    "ValueTooLarge",
]
