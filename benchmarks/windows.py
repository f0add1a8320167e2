"""One window of time under load, and what it gave."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.reference import reference_us

if TYPE_CHECKING:
    from benchmarks.load import Load
    from benchmarks.processes import Server

#: Before a window: code is warm, and all runs have been started.
WARM_UP_S = 2.0
SETTLE_S = 0.5
HEADER = "    runs    nodes/s    p50 ms    p99 ms    CPU µs  relative  server"


@dataclass(slots=True)
class Repeat:
    """What one window gave."""

    nodes_per_second: float
    cpu_us_per_node: float
    #: How much of one core the server used, from 0 to a little above 1.
    server_load: float
    reference_us: float
    p50_ms: float
    p99_ms: float

    @property
    def relative(self) -> float:
        """The server's CPU per node in rounds of the reference."""
        return self.cpu_us_per_node / self.reference_us


async def measure_window(server: Server, made: Load, seconds: float) -> Repeat:
    """Measure one window of a load that is kept up."""
    before = reference_us()
    # The reference has held up this process: what the server did meanwhile must not count.
    await asyncio.sleep(SETTLE_S)
    cpu = server.cpu_us()
    window = await made.measure(seconds)
    used = server.cpu_us() - cpu
    reference = (before + reference_us()) / 2
    ordered = sorted(window.node_ms) or [0.0]
    return Repeat(
        nodes_per_second=window.nodes_per_second,
        cpu_us_per_node=used / max(window.nodes, 1),
        server_load=used / window.seconds / 1e6,
        reference_us=reference,
        p50_ms=ordered[len(ordered) // 2],
        p99_ms=ordered[len(ordered) * 99 // 100],
    )


def row(head: str, each: Repeat) -> str:
    """Return a window as a line of the table."""
    return (
        f"{head}  {each.nodes_per_second:>9,.0f}  {each.p50_ms:>8.2f}  {each.p99_ms:>8.2f}"
        f"  {each.cpu_us_per_node:>8.0f}  {each.relative:>8.1f}  {each.server_load:>6.0%}"
    )
