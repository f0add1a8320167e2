"""Play many seeds: `python -m tests.simulation --seeds 300 --start 12345`, or `make simulate`.

The exit status is 1 if anything was wrong. Each seed that fails is played again with fewer faults, until none can be left out, and is
shown with the command that plays it again. The last line counts.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.simulation.courses import Verdict, judge_all
from tests.simulation.sabotage import BY_NAME
from tests.simulation.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Callable

#: A failure more says little; whoever reads it begins with the first.
MOST_FAILURES = 3
SHOWN_LINES = 40
PROGRESS_S = 5.0


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of text differs from process to process, and a course must not.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.simulation", *arguments], environment
        )
    only = None if options.only is None else frozenset(filter(None, options.only.split(",")))
    seeds = range(options.start, options.start + options.seeds)
    counts: Counter[str] = Counter()
    failed: list[int] = []
    began = said = time.monotonic()
    sabotage = BY_NAME[options.sabotage] if options.sabotage else None
    for verdict in judge_all(seeds, options.jobs, only, sabotage):
        counts += verdict.counts
        counts["seeds"] += 1
        counts["steps"] += verdict.steps
        if verdict.troubles:
            failed.append(verdict.seed)
            _show(verdict, sabotage, is_named=only is not None)
            if len(failed) >= MOST_FAILURES or sabotage is not None:
                break
        elif options.trace:
            print(*verdict.trace, sep="\n")
        if time.monotonic() - said > PROGRESS_S:
            said = time.monotonic()
            print(f"… {counts['seeds']:,} of {options.seeds:,} seeds", file=sys.stderr, flush=True)
    if options.counts:
        print(*(f"  {name}: {count:,}" for name, count in sorted(counts.items())), sep="\n")
    verdict_text = f"FAILED: {', '.join(map(str, failed))}" if failed else "every invariant held"
    print(
        f"{counts['seeds']:,} seeds, {counts['steps']:,} steps, {counts['faults']:,} injected faults, "
        f"{counts['runs']:,} runs of which {counts['runs compared']:,} were compared with their undisturbed twin, "
        f"in {time.monotonic() - began:.0f} s: {verdict_text}"
    )
    return 1 if failed else 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds")
    parser.add_argument("--start", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--only", help="only the faults with these names, as kind:number,…")
    parser.add_argument(
        "--sabotage", choices=BY_NAME, help="build a fault into the server, which must be found"
    )
    parser.add_argument("--trace", action="store_true", help="print what happened")
    parser.add_argument("--counts", action="store_true", help="print how often what happened")
    return parser.parse_args(arguments)


def _show(verdict: Verdict, sabotage: Callable[[], None] | None, *, is_named: bool) -> None:
    def again(only: frozenset[str]) -> Verdict:
        return next(judge_all([verdict.seed], 1, only, sabotage))

    print(f"seed {verdict.seed} FAILED: {verdict.troubles[0]}", flush=True)
    smallest = verdict
    if not is_named:
        names = shrink(verdict.happened, lambda some: bool(again(some).troubles))
        smallest = again(frozenset(names))
    if not smallest.troubles:
        print("  it does not fail again with the same faults: something is not decided by the seed")
        smallest = verdict
    print(f"  with {len(smallest.happened)} of {len(verdict.happened)} faults:")
    for trouble in smallest.troubles[:5]:
        print(f"    {trouble}")
    print("  what happened last:")
    for line in smallest.trace[-SHOWN_LINES:]:
        print(f"    {line[:300]}")
    only = ",".join(smallest.happened)
    print(
        f'  play it again: make simulate SEEDS=1 START={verdict.seed} ARGS="--only {only or "none"} --trace"'
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
