"""What recording traces costs: the same load on three servers, which record nothing, their default, and every run.

The three take turns, window by window, so that a machine that drifts drifts for all of them. Spans are sent to a sink on loopback.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.load import load
from benchmarks.processes import running_executor, running_server, running_sink
from benchmarks.react_work import react_graph
from benchmarks.windows import HEADER, Repeat, measure_window, row

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.processes import Server

RUNS = 64
"""So many runs keep the server's loop busy, and fit into the caches of most machines."""


@dataclass(slots=True)
class Recorded:
    """How much is recorded, and what all windows of that gave."""

    name: str
    variables: Mapping[str, str]
    repeats: list[Repeat] = field(default_factory=list)

    @property
    def nodes_per_second(self) -> float:
        return statistics.median(each.nodes_per_second for each in self.repeats)

    def cost(self, off: Recorded) -> float:
        """Return what share more CPU a node takes than without; of windows that stood side by side."""
        pairs = zip(self.repeats, off.repeats, strict=True)
        return statistics.median(mine.relative / theirs.relative for mine, theirs in pairs) - 1


async def measure_tracing(folder: Path, executor: str, given: Namespace) -> list[Recorded]:
    """Measure all three. Prints each window."""
    print(f"\nTracing, {RUNS} runs\n{HEADER}", flush=True)
    with contextlib.ExitStack() as processes:
        sink = {
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://{processes.enter_context(running_sink())}"
        }
        recorded = [
            Recorded("off", {}),
            Recorded("default", sink),
            Recorded("all", {**sink, "OTEL_TRACES_SAMPLER": "always_on"}),
        ]
        launcher = [sys.executable, "-m", "stepgraph_server"]
        servers: list[Server] = []
        for each in recorded:
            place = folder / f"tracing-{each.name}"
            place.mkdir()
            server = processes.enter_context(running_server(place, launcher, each.variables))
            processes.enter_context(running_executor(server, executor))
            servers.append(server)
        for _ in range(given.repeats):
            for server, each in zip(servers, recorded, strict=True):
                await _window(server, each, given.seconds)
    return recorded


async def _window(server: Server, recorded: Recorded, seconds: float) -> None:
    async with load(server.address, react_graph().build(), "tracing") as made:
        await made.keep(RUNS)
        repeat = await measure_window(server, made, seconds)
        recorded.repeats.append(repeat)
        print(row(f"{recorded.name:>8}", repeat), flush=True)


def tracing_figures(recorded: Sequence[Recorded]) -> dict[str, float]:
    """Return nodes per second of each, and what share more CPU the default and all take."""
    off, *others = recorded
    figures = {f"tracing_{each.name}_{RUNS}": round(each.nodes_per_second, 1) for each in recorded}
    costs = {f"tracing_{each.name}_cost_{RUNS}": round(each.cost(off), 4) for each in others}
    return figures | costs


def report_tracing(recorded: Sequence[Recorded]) -> None:
    """Print what each costs."""
    off, *others = recorded
    for each in others:
        print(f"tracing {each.name}: {each.cost(off):+.1%} CPU per node")
