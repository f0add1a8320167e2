"""What is durable, written down by the disk itself, and what must hold of it whatever happens.

Rules: a book is written in the moment in which an append is committed, before anybody hears of it. Whatever a server sends,
acknowledges or shows is looked up here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepgraph_server.storage.records import Append, Appended

FINAL = frozenset({"run_completed", "run_failed", "run_cancelled"})
_ENDS = ("task_completed", "task_failed", "task_cancelled")


@dataclass(slots=True)
class Book:
    """The durable events of one run, and what follows from them."""

    events: list[event_pb2.RunEvent] = field(default_factory=list)
    #: The last attempt of each task that was assigned.
    assigned: dict[str, int] = field(default_factory=dict)
    #: The instance that has it.
    holders: dict[str, str] = field(default_factory=dict)
    #: Attempts with the event that says how they ended.
    ended: dict[tuple[str, int], str] = field(default_factory=dict)
    #: Tasks that ended for good.
    over: set[str] = field(default_factory=set)
    #: Questions: open, or what became of them.
    questions: dict[str, str] = field(default_factory=dict)
    is_final: bool = False
    is_fork: bool = False
    #: The topmost run above it; itself, if there is none.
    root: str = ""

    @property
    def last(self) -> int:
        """The last sequence."""
        return len(self.events)

    def copy_until(self, sequence: int) -> Book:
        """Return the book of a run that begins with the first events of this one."""
        copied = Book(is_fork=True)
        for event in self.events[:sequence]:
            copied.add(event)
        return copied

    def add(self, event: event_pb2.RunEvent) -> Iterable[str]:
        """Write an event down, and return what is wrong with it."""
        kind = event.WhichOneof("kind") or ""
        troubles = []
        if event.sequence != self.last + 1:
            troubles.append(f"I1: event {event.sequence} follows event {self.last}")
        if self.is_final:
            troubles.append(f"I3: {kind} follows the terminal event")
        self.events.append(event)
        match kind:
            case "task_scheduled" | "task_assigned":
                troubles += self._assign(getattr(event, kind))
            case "task_completed" | "task_failed" | "task_cancelled" | "task_lost":
                troubles += self._end(kind, getattr(event, kind))
            case "interrupt_opened":
                self.questions[event.interrupt_opened.question.interrupt_id] = "open"
            case "interrupt_answered" | "interrupt_closed":
                troubles += self._close(kind, getattr(event, kind).interrupt_id)
            case "run_started":
                self.root = event.run_started.root_run_id
            case "run_forked":
                self.root = event.run_forked.run_id
                # What was under way there starts anew here.
                self.assigned.clear()
                self.questions.clear()
                self.is_final = False
            case _:
                self.is_final = self.is_final or kind in FINAL
        return troubles

    def _assign(self, fact: event_pb2.TaskScheduled | event_pb2.TaskAssigned) -> Iterable[str]:
        attempt = fact.assignment.attempt
        if not attempt:
            return
        if fact.task_id in self.over:
            yield f"{fact.task_id}#{attempt} is assigned after the task has ended"
        before = self.assigned.get(fact.task_id, 0)
        if before and (fact.task_id, before) not in self.ended:
            yield f"{fact.task_id}#{attempt} is assigned while attempt {before} lives"
        if attempt <= before:
            yield f"{fact.task_id}#{attempt} is assigned after attempt {before}"
        self.assigned[fact.task_id] = attempt
        self.holders[fact.task_id] = fact.assignment.instance

    def _end(self, kind: str, fact: event_pb2.TaskCompleted) -> Iterable[str]:
        task_id, attempt = fact.task_id, fact.attempt
        if kind == "task_lost" or (kind == "task_failed" and fact.HasField("retry_time")):
            for_good = False
        else:
            for_good = True
        if task_id in self.over:
            yield f"I4: {kind} of {task_id}#{attempt}, which has ended before"
        if attempt and self.assigned.get(task_id, attempt) != attempt and kind != "task_cancelled":
            yield f"{kind} of {task_id}#{attempt}, and {self.assigned[task_id]} is the attempt that counts"
        self.ended[task_id, attempt or self.assigned.get(task_id, 0)] = kind
        if for_good:
            self.over.add(task_id)

    def _close(self, kind: str, interrupt_id: str) -> Iterable[str]:
        if self.questions.get(interrupt_id) != "open":
            yield f"I10: {kind} of {interrupt_id}, which is not open"
        self.questions[interrupt_id] = kind

    def is_assigned(self, task_id: str, attempt: int) -> bool:
        """Whether an attempt was assigned."""
        return attempt <= self.assigned.get(task_id, 0)


class Ledger:
    """The books of all runs."""

    def __init__(
        self,
        trouble: Callable[[str], None],
        note: Callable[[str], None],
        on_commit: Callable[[], None],
    ) -> None:
        self._trouble = trouble
        self._note = note
        self._on_commit = on_commit
        self.books: dict[str, Book] = {}
        self.commits = 0
        self.kinds: Counter[str] = Counter()

    def book(self, run_id: str) -> Book:
        """Return the book of a run, an empty one if there is no such run."""
        return self.books.get(run_id) or Book()

    def committed(self, results: Iterable[Appended]) -> None:
        """Write down what one commit made durable."""
        self.commits += 1
        for result in results:
            if result.error is None:
                self._append(result.append)
        self._on_commit()

    def _append(self, append: Append) -> None:
        run_id = append.key.run_id
        if append.prefix is not None:
            source = self.books[append.prefix.source.run_id]
            self.books[run_id] = source.copy_until(append.prefix.last_sequence)
        book = self.books.setdefault(run_id, Book())
        self.add_all(run_id, book, event_pb2.EventBatch.FromString(append.batch).events)
        if append.last_sequence != book.last:
            self._trouble(f"{run_id}: an append ends at {append.last_sequence}, not {book.last}")

    def add_all(self, run_id: str, book: Book, events: Iterable[event_pb2.RunEvent]) -> None:
        """Add events to a book."""
        names = []
        for event in events:
            kind = event.WhichOneof("kind") or "?"
            self.kinds[kind] += 1
            names.append(_shown(event, kind))
            for trouble in book.add(event):
                self._trouble(f"{run_id}: {trouble}")
        self._note(f"durable {run_id} {book.last}: {' '.join(names)}")

    def check_read_back(self, run_id: str, events: list[event_pb2.RunEvent]) -> None:
        """Compare with what a disk holds after a crash: nothing durable is gone; what nobody heard of may be there."""
        book = self.books.setdefault(run_id, Book())
        if events[: book.last] != book.events:
            self._trouble(f"{run_id}: events that were durable are gone or others after a crash")
            return
        if len(events) > book.last:
            self.add_all(run_id, book, events[book.last :])


def _shown(event: event_pb2.RunEvent, kind: str) -> str:
    fact = getattr(event, kind, None)
    task_id = getattr(fact, "task_id", "")
    if not task_id:
        return kind
    attempt = getattr(fact, "attempt", 0) or getattr(
        getattr(fact, "assignment", None), "attempt", 0
    )
    return f"{kind}({task_id}#{attempt})"


__all__ = ["FINAL", "Book", "Ledger"]
