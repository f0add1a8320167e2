"""Runs the server and writes where its time went: `python -m benchmarks.profiled samples out.txt --listen …`.

`samples` looks at the stack of the event loop's thread by the clock of the server's CPU, as often as the kernel ticks: it costs
little, and what it shows adds up to the truth; time in C is the line's that called it. `calls` counts every call of Python and C (cProfile): it makes
everything slower, small functions most, but says how often each is called.
"""

from __future__ import annotations

import collections
import contextlib
import cProfile
import io
import pstats
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepgraph_server.command import serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: Less than a tick of the kernel, which is what decides: 1 to 10 ms.
INTERVAL_S = 0.001
SHOWN = 45


class Samples:
    """Counts where the main thread is."""

    def __init__(self) -> None:
        self.count = 0
        self.own: collections.Counter[str] = collections.Counter()
        self.below: collections.Counter[str] = collections.Counter()

    def take(self, _signal: int, frame: FrameType | None) -> None:
        self.count += 1
        if frame is not None:
            self.own[f"{_place(frame)}:{frame.f_lineno}"] += 1
        seen = set()
        while frame is not None:
            seen.add(_place(frame))
            frame = frame.f_back
        self.below.update(seen)

    def text(self) -> str:
        lines = [f"{self.count} samples of the event loop's thread, by the server's CPU time"]
        for title, counter in (
            ("lines by themselves", self.own),
            ("functions with all below", self.below),
        ):
            lines += ["", f"{title}:"]
            lines += [
                f"  {count / max(self.count, 1):6.1%}  {place}"
                for place, count in counter.most_common(SHOWN)
            ]
        return "\n".join(lines)


def _place(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    return f"{'/'.join(path.parts[-3:])} {frame.f_code.co_qualname}"


@contextlib.contextmanager
def sampling(out: Path) -> Iterator[None]:
    samples = Samples()
    signal.signal(signal.SIGPROF, samples.take)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        out.write_text(samples.text())


@contextlib.contextmanager
def counting(out: Path) -> Iterator[None]:
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        text = io.StringIO()
        stats = pstats.Stats(profile, stream=text).strip_dirs()
        stats.sort_stats("tottime").print_stats(SHOWN)
        stats.sort_stats("cumulative").print_stats(SHOWN)
        out.write_text(text.getvalue())


def main() -> None:
    kind, out, *arguments = sys.argv[1:]
    sys.argv = ["stepgraph", *arguments]
    with (sampling if kind == "samples" else counting)(Path(out)):
        serve()


if __name__ == "__main__":
    main()
