"""Watching: what is durable, and what is shown while it happens, for whoever watches."""

from __future__ import annotations

from stepgraph_server.engine.watch.hub import WatchHub
from stepgraph_server.engine.watch.run import RunSubscription
from stepgraph_server.engine.watch.runs import ResumePoint, RunsSubscription
from stepgraph_server.engine.watch.subscription import END, KEEPALIVE, WatchItem, WatchSignal
from stepgraph_server.engine.watch.watcher import Watcher

__all__ = [
    "END",
    "KEEPALIVE",
    "ResumePoint",
    "RunSubscription",
    "RunsSubscription",
    "WatchHub",
    "WatchItem",
    "WatchSignal",
    "Watcher",
]
