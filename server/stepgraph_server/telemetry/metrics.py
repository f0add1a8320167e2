"""The metrics of a server: what each is called, what it means, and where it is read.

Rules: all are read from the server's own counters when somebody asks, so counting costs the loop nothing more. No label has a value
that somebody chooses: there are as many series after ten thousand runs as before the first. docs/observability.md lists the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from stepgraph_server.telemetry.histogram import Histogram
from stepgraph_server.telemetry.measurements import Measurements
from stepgraph_server.telemetry.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from stepgraph_server.telemetry.recorder import SpanRecorder

Reading: TypeAlias = "tuple[Mapping[str, str], float]"
Kind: TypeAlias = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: `read` returns its series, from any thread."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()
    read: Callable[[], Iterable[Reading]]


@dataclass(slots=True, kw_only=True)
class Sources:
    """Where metrics are read. `measured` is replaced by newer ones as a whole."""

    tally: Tally = field(default_factory=Tally)
    loop_lag: Histogram = field(default_factory=Histogram)
    commits: Histogram = field(default_factory=Histogram)
    measured: Measurements = field(default_factory=Measurements)
    recorder: SpanRecorder | None = None


def metrics_of(sources: Sources) -> list[Metric]:
    """Return all metrics."""
    return [
        *_of_runs(sources.tally),
        *_of_attempts(sources),
        *_of_streams(sources),
        *_of_journal(sources),
        *_histogram(
            "stepgraph.loop.lag",
            "How late the event loop was, looked at every 100 ms; everything waits behind it",
            sources.loop_lag,
        ),
        *_of_spans(sources),
    ]


def _of_runs(tally: Tally) -> Iterator[Metric]:
    yield _counter(
        "stepgraph.runs.started", "{run}", "Runs that started", lambda: tally.runs_started
    )
    yield _by(
        "stepgraph.runs.ended",
        "{run}",
        "Runs that ended, by how",
        "status",
        lambda: tally.runs_ended,
    )
    yield _by(
        "stepgraph.nodes.ended",
        "{node}",
        "Nodes that ended, by how",
        "status",
        lambda: tally.nodes_ended,
    )
    yield _counter(
        "stepgraph.interrupts.opened",
        "{interrupt}",
        "Questions that were asked",
        lambda: tally.questions_opened,
    )
    yield _by(
        "stepgraph.tokens",
        "{token}",
        "Tokens of models and agents, by whether they were read or written",
        "type",
        lambda: {"input": tally.input_tokens, "output": tally.output_tokens},
    )


def _of_attempts(sources: Sources) -> Iterator[Metric]:
    tally = sources.tally
    yield _gauge(
        "stepgraph.queue.tasks",
        "{task}",
        "Tasks that wait for an executor with room",
        lambda: sources.measured.queued_tasks,
    )
    yield _gauge(
        "stepgraph.queue.oldest_age",
        "s",
        "For how long the task waits that waits longest",
        lambda: sources.measured.oldest_task_s,
    )
    yield _gauge(
        "stepgraph.attempts.in_flight",
        "{attempt}",
        "Attempts that executors have",
        lambda: sources.measured.attempts,
    )
    yield _counter(
        "stepgraph.attempts.started",
        "{attempt}",
        "Attempts that were assigned to an executor",
        lambda: tally.attempts_started,
    )
    yield _counter(
        "stepgraph.attempts.sent",
        "{attempt}",
        "Attempts that were sent to one",
        lambda: sources.measured.sent_tasks,
    )
    yield _counter(
        "stepgraph.attempts.failed",
        "{attempt}",
        "Attempts that failed",
        lambda: tally.attempts_failed,
    )
    yield _by(
        "stepgraph.attempts.lost",
        "{attempt}",
        "Attempts that ended without having been a try, by how",
        "reason",
        lambda: tally.attempts_lost,
    )
    yield _counter(
        "stepgraph.retries",
        "{retry}",
        "Failed attempts that are tried again",
        lambda: tally.retries,
    )
    yield _by(
        "stepgraph.results",
        "{result}",
        "Results of executors, by what became of them",
        "verdict",
        lambda: dict(sources.measured.verdicts),
    )


def _of_streams(sources: Sources) -> Iterator[Metric]:
    yield _gauge(
        "stepgraph.sessions",
        "{session}",
        "Executors that are connected",
        lambda: sources.measured.sessions,
    )
    yield _gauge(
        "stepgraph.watchers",
        "{watcher}",
        "Streams that watch runs",
        lambda: sources.measured.watchers,
    )


def _of_journal(sources: Sources) -> Iterator[Metric]:
    tally = sources.tally
    yield _gauge(
        "stepgraph.runs.in_memory",
        "{run}",
        "Runs that something is under way with",
        lambda: sources.measured.runs_in_memory,
    )
    yield _gauge(
        "stepgraph.runs.loading",
        "{run}",
        "Runs that wait to be read from the journal",
        lambda: sources.measured.runs_loading,
    )
    yield _counter(
        "stepgraph.journal.events", "{event}", "Events that became durable", lambda: tally.events
    )
    yield _counter("stepgraph.journal.size", "By", "Bytes of them", lambda: tally.bytes)
    yield _gauge(
        "stepgraph.journal.waiting",
        "{append}",
        "Appends that wait to be written",
        lambda: sources.measured.waiting_appends,
    )
    yield _gauge(
        "stepgraph.journal.waiting_size",
        "By",
        "Bytes of them",
        lambda: sources.measured.waiting_bytes,
    )
    yield from _histogram(
        "stepgraph.journal.commit",
        "How long one commit took, which writes what many runs have ready",
        sources.commits,
    )


def _of_spans(sources: Sources) -> Iterator[Metric]:
    recorder = sources.recorder
    if recorder is None:
        return
    yield _counter(
        "stepgraph.spans.sent", "{span}", "Spans that a collector took", lambda: recorder.sent
    )
    yield _by(
        "stepgraph.spans.lost",
        "{item}",
        "Spans that no collector took, and events that came too fast to become spans",
        "what",
        lambda: {
            "spans": recorder.lost.unsent,
            "events": recorder.lost.overflowed + recorder.lost.unread,
        },
    )


def _counter(name: str, unit: str, meaning: str, read: Callable[[], float]) -> Metric:
    return Metric(
        name=name, kind="counter", unit=unit, meaning=meaning, read=lambda: [({}, read())]
    )


def _gauge(name: str, unit: str, meaning: str, read: Callable[[], float]) -> Metric:
    return Metric(name=name, kind="gauge", unit=unit, meaning=meaning, read=lambda: [({}, read())])


def _by(
    name: str, unit: str, meaning: str, label: str, read: Callable[[], Mapping[str, float]]
) -> Metric:
    return Metric(
        name=name,
        kind="counter",
        unit=unit,
        meaning=meaning,
        labels=(label,),
        read=lambda: [({label: value}, count) for value, count in read().items()],
    )


def _histogram(name: str, meaning: str, source: Histogram) -> Iterator[Metric]:
    """Return a histogram as counters: OpenTelemetry has none that is read from somewhere else."""
    yield Metric(
        name=f"{name}.bucket",
        kind="counter",
        unit="{observation}",
        meaning=f"{meaning}: how often it was at most `le` seconds",
        labels=("le",),
        read=lambda: [({"le": bound}, count) for bound, count in source.cumulative()],
    )
    yield _counter(f"{name}.time", "s", f"{meaning}: all of it together", lambda: source.total)
