"""What tests of graphs need: a workbench with a real server and scripted executors, and dry runs without any.

See docs/how-to/testing.md. This package imports client and server, and nothing of either imports it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepgraph_testing.bench_run import BenchRun, Stuck
    from stepgraph_testing.dry_runs import DryRun, dry_run
    from stepgraph_testing.history import History, Path, TaskSeen
    from stepgraph_testing.replies import call, calls, later
    from stepgraph_testing.workbench import Workbench

__all__ = [
    "BenchRun",
    "DryRun",
    "History",
    "Path",
    "Stuck",
    "TaskSeen",
    "Workbench",
    "call",
    "calls",
    "dry_run",
    "later",
]

# Imported when they are first asked for: pytest loads the plug-in of this package into every session, also where no server is
# installed.
_LATER = {
    "BenchRun": "bench_run",
    "DryRun": "dry_runs",
    "History": "history",
    "Path": "history",
    "Stuck": "bench_run",
    "TaskSeen": "history",
    "Workbench": "workbench",
    "call": "replies",
    "calls": "replies",
    "dry_run": "dry_runs",
    "later": "replies",
}


def __getattr__(name: str) -> object:
    """Return what a test needs."""
    if name not in _LATER:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module = import_module(f"{__name__}.{_LATER[name]}")
    found: object = getattr(module, name)
    return found
