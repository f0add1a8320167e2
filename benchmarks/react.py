"""How fast an agent in a loop is: `python -m benchmarks.react`, or `make bench`. README.md says how to read it.

The server is a real process with SQLite at synchronous=FULL; so is the executor; this process starts runs and counts.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import sqlite3
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load import Load, load
from benchmarks.processes import Server, running_executor, running_server
from benchmarks.react_work import NODES_PER_RUN, PAYLOAD_BYTES_PER_RUN, react_graph
from benchmarks.tracing import measure_tracing, report_tracing, tracing_figures
from benchmarks.windows import HEADER, WARM_UP_S, Repeat, measure_window, row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.tracing import Recorded

EXECUTORS = {"stub": "benchmarks.stub_executor", "client": "benchmarks.client_executor"}


@dataclass(slots=True)
class Level:
    """What all windows of one number of runs gave."""

    runs: int
    repeats: list[Repeat] = field(default_factory=list)
    journal_bytes_per_run: float = 0.0

    def median(self, name: str) -> float:
        """Return the median of a figure over the windows."""
        return float(statistics.median(getattr(each, name) for each in self.repeats))

    @property
    def relative_cpu(self) -> float:
        """The server's CPU per node in rounds of the reference, each of the same minute."""
        return statistics.median(each.relative for each in self.repeats)


async def measure_level(
    server: Server, made: Load, level: Level, seconds: float, repeats: int
) -> None:
    """Keep so many runs alive, and measure a few windows. Prints each one."""
    size, ended = server.journal_bytes(), made.total_ended
    await made.keep(level.runs)
    await asyncio.sleep(WARM_UP_S)
    for _ in range(repeats):
        repeat = await measure_window(server, made, seconds)
        level.repeats.append(repeat)
        print(row(f"{level.runs:>8}", repeat), flush=True)
    await made.keep(0)
    level.journal_bytes_per_run = (server.journal_bytes() - size) / max(made.total_ended - ended, 1)


async def measure(server: Server, given: argparse.Namespace) -> list[Level]:
    """Measure every number of runs that was asked for."""
    levels = [Level(runs=runs) for runs in given.runs]
    graph = react_graph().build()
    print(HEADER, flush=True)
    for level in levels:
        async with load(server.address, graph, f"level-{level.runs}") as made:
            await measure_level(server, made, level, given.seconds, given.repeats)
    return levels


def report(
    levels: Sequence[Level],
    recorded: Sequence[Recorded],
    server_mib: float,
    given: argparse.Namespace,
) -> None:
    """Print the medians as a table, and everything as one line of JSON."""
    print(f"\nMedians of {given.repeats} windows of {given.seconds:g} s\n{HEADER}")
    for level in levels:
        names = Repeat.__dataclass_fields__
        medians = Repeat(**{name: level.median(name) for name in names})
        print(row(f"{level.runs:>8}", medians))
    stored = levels[-1].journal_bytes_per_run
    print(
        f"\njournal: {stored:,.0f} bytes a run of {NODES_PER_RUN} nodes, "
        f"{stored / PAYLOAD_BYTES_PER_RUN:.2f} times what executors gave; "
        f"server's memory: {server_mib:,.0f} MiB at most"
    )
    figures = _figures(levels, stored, server_mib, given)
    if recorded:
        report_tracing(recorded)
        figures |= tracing_figures(recorded)
    print(json.dumps(figures))


def _figures(
    levels: Sequence[Level], stored: float, server_mib: float, given: argparse.Namespace
) -> dict[str, object]:
    figures: dict[str, object] = {"benchmark": "react", "executor": given.executor}
    for level in levels:
        runs = level.runs
        figures[f"nodes_per_second_{runs}"] = round(level.median("nodes_per_second"), 1)
        figures[f"node_ms_p50_{runs}"] = round(level.median("p50_ms"), 3)
        figures[f"node_ms_p99_{runs}"] = round(level.median("p99_ms"), 3)
        figures[f"server_cpu_us_per_node_{runs}"] = round(level.median("cpu_us_per_node"), 1)
        figures[f"server_cpu_relative_{runs}"] = round(level.relative_cpu, 2)
        figures[f"reference_us_{runs}"] = round(level.median("reference_us"), 2)
    figures["journal_bytes_per_run"] = round(stored)
    figures["payload_bytes_per_run"] = PAYLOAD_BYTES_PER_RUN
    figures["server_peak_mib"] = round(server_mib, 1)
    figures["profiled"] = given.profile is not None
    figures["machine"] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
    figures["versions"] = {
        **{name: importlib.metadata.version(name) for name in ("stepgraph", "grpcio", "protobuf")},
        "sqlite": sqlite3.sqlite_version,
    }
    return figures


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(": ")[1] for line in lines if line.startswith("model name")), "")


def _counts(text: str) -> list[int]:
    counts = [int(each) for each in text.split(",")]
    if min(counts) < 1:
        message = "expected numbers from 1, such as 1,64,256"
        raise argparse.ArgumentTypeError(message)
    return counts


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs",
        type=_counts,
        metavar="N,N",
        help="how many runs at once (1,64,256; with --profile 64)",
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a window (5)")
    parser.add_argument("--repeats", type=int, default=3, help="windows of each number (3)")
    parser.add_argument("--executor", choices=EXECUTORS, default="stub", help="who does the work")
    parser.add_argument(
        "--profile",
        nargs="?",
        const="samples",
        choices=("samples", "calls"),
        help="show where the server's time goes: by samples of its stack, or by counting calls",
    )
    parser.add_argument(
        "--no-tracing", action="store_true", help="leave out what recording traces costs"
    )
    given = parser.parse_args()
    given.runs = given.runs or ([64] if given.profile else [1, 64, 256])
    return given


def main() -> None:
    given = arguments()
    launcher = [sys.executable, "-m", "stepgraph_server"]
    with tempfile.TemporaryDirectory(prefix="stepgraph-benchmark-") as name:
        folder = Path(name)
        profile = folder / "profile.txt"
        if given.profile:
            launcher = [sys.executable, "-m", "benchmarks.profiled", given.profile, str(profile)]
        try:
            with (
                running_server(folder, launcher) as server,
                running_executor(server, EXECUTORS[given.executor]),
            ):
                levels = asyncio.run(measure(server, given))
                peak = server.peak_mib()
            recorded: Sequence[Recorded] = ()
            if not (given.no_tracing or given.profile):
                recorded = asyncio.run(measure_tracing(folder, EXECUTORS[given.executor], given))
        except BaseException:
            print((folder / "server.log").read_text(errors="replace")[-4_000:], file=sys.stderr)
            raise
        if given.profile:
            print(f"\n{profile.read_text()}")
    report(levels, recorded, peak, given)


if __name__ == "__main__":
    main()
