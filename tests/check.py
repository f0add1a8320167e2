"""Every check there is, cheapest first: `python -m tests.check`, or `make check`.

This list is the only one: CI runs this file. A step that fails prints its whole output and the next
steps still run, so that one round shows everything that is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent

# Tests themselves need no types; what they are built from does.
TYPED = ("protos", "server", "client", "scripts", "examples", "tests/support", "tests/check.py")

# What pure code and its ports are tested by. The suites that start servers or processes run under
# `make test`: they are slower, and a line that only they reach is a line without a test of its own.
COVERING_SUITES = ("unit", "scenarios", "properties", "contracts")

# Least coverage, lines and branches together, in percent, of a module or of everything below a
# folder. 0 only reports. Raise a floor when the part has reached it; lower none without a reason
# beside it. The goal is 100 for the parts that do no I/O, and 90 elsewhere.
COVERAGE_FLOORS = {
    "server/stepgraph_server/core": 99.5,
    "server/stepgraph_server/executors/session.py": 100,
    "client/stepgraph_client/_session.py": 100,
    "server/stepgraph_server": 97,
    "client/stepgraph_client": 97,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One tool to run. `reports_only`: its failure is printed, and does not fail the check."""

    name: str
    command: Sequence[str | Path]
    reports_only: bool = False
    skip_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a step ended. `note` is the one thing worth saying of it when it went well."""

    name: str
    passed: bool
    output: str
    note: str = ""


def static_steps() -> Iterator[Step]:
    """Return the steps that need no test run, cheapest first."""
    typed = [place for place in TYPED if (ROOT / place).exists()]
    yield Step(name="ruff format", command=(BIN / "ruff", "format", "--check", "."))
    yield Step(name="ruff check", command=(BIN / "ruff", "check", "."))
    yield Step(name="buf format", command=(BIN / "buf", "format", "--diff", "--exit-code"))
    yield Step(name="buf lint", command=(BIN / "buf", "lint"))
    yield breaking_step()
    yield Step(
        name="generated code", command=(sys.executable, ROOT / "scripts/generate.py", "--check")
    )
    yield Step(name="reference", command=(sys.executable, ROOT / "scripts/reference.py", "--check"))
    yield Step(
        name="command line", command=(sys.executable, ROOT / "scripts/command_line.py", "--check")
    )
    yield Step(name="import-linter", command=(BIN / "lint-imports", "--no-logo"))
    yield Step(name="mypy", command=(BIN / "mypy", *typed))


def breaking_step() -> Step:
    """Compare the schema with the last release; until 1.0.0, v1 promises nothing: only report."""
    describe = ("git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    found = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=False)
    tag = found.stdout.strip()
    return Step(
        name="buf breaking",
        command=(BIN / "buf", "breaking", "--against", f".git#tag={tag}"),
        reports_only=True,
        skip_reason="" if tag else "no release tag yet",
    )


def run(step: Step) -> Outcome:
    """Run a step from the root of the repository, its output and errors as one text."""
    if step.skip_reason:
        return Outcome(name=step.name, passed=True, output="", note=f"skipped: {step.skip_reason}")
    done = subprocess.run(
        step.command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        # Colours would only get in the way of whoever searches a log.
        env={**os.environ, "NO_COLOR": "1", "TERM": "dumb"},
    )
    if done.returncode != 0 and step.reports_only:
        print(done.stdout)
        return Outcome(name=step.name, passed=True, output="", note="differs, see above")
    return Outcome(name=step.name, passed=done.returncode == 0, output=done.stdout)


def run_tests() -> Outcome:
    """Run the covering suites, and hold their coverage against the floors."""
    suites = [f"tests/{name}" for name in COVERING_SUITES if (ROOT / "tests" / name).is_dir()]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        tests = run(
            Step(
                name="pytest",
                command=(
                    *(sys.executable, "-m", "pytest", "--quiet", *suites),
                    *("--cov", "--cov-report=", f"--cov-report=json:{report}"),
                ),
            )
        )
        if not tests.passed or not report.exists():
            return Outcome(name="pytest", passed=tests.passed, output=tests.output)
        files = json.loads(report.read_text())["files"]
    summary = tests.output.strip().splitlines()[-1]
    lines = list(coverage_lines(files))
    low = [text for text, enough in lines if not enough]
    table = "\n".join(f"      {text}" for text, _ in lines)
    return Outcome(
        name="pytest",
        passed=not low,
        output="coverage is below its floor:\n" + "\n".join(low),
        note=f"{summary}\n{table}",
    )


def coverage_lines(files: dict[str, dict[str, dict[str, int]]]) -> Iterator[tuple[str, bool]]:
    """Return for each floor a line of the table, and whether the floor is reached."""
    for place, floor in COVERAGE_FLOORS.items():
        covered = total = 0
        for name, file in files.items():
            if name == place or name.startswith(f"{place}/"):
                summary = file["summary"]
                covered += summary["covered_lines"] + summary["covered_branches"]
                total += summary["num_statements"] + summary["num_branches"]
        percent = 100 * covered / total if total else 100.0
        yield f"{percent:6.2f} % of {place} (floor {floor} %)", percent >= floor


def main() -> int:
    """Return the exit status: 0 if every step passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.check", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="leave the tests out")
    options = parser.parse_args()
    started = time.perf_counter()
    failed: list[str] = []
    actions: list[tuple[str, Callable[[], Outcome]]] = [
        (step.name, partial(run, step)) for step in static_steps()
    ]
    if not options.fast:
        actions.append(("pytest", run_tests))
    for name, action in actions:
        if sys.stdout.isatty():
            print(f"....  {name}", end="\r", flush=True)
        begun = time.perf_counter()
        outcome = action()
        word = "ok  " if outcome.passed else "FAIL"
        print(
            f"{word}  {name:<16}{time.perf_counter() - begun:6.1f} s  {outcome.note}".rstrip(),
            flush=True,
        )
        if not outcome.passed:
            failed.append(name)
            print(f"\n{outcome.output.strip()}\n")
    seconds = time.perf_counter() - started
    if failed:
        print(
            f"\n{len(failed)} of {len(actions)} checks failed in {seconds:.0f} s: {', '.join(failed)}"
        )
        return 1
    print(f"\nall {len(actions)} checks passed in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
