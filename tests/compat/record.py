"""Record golden journals: python -m tests.compat.record VERSION [STORY…].

Writes, for each story, the graph, the events and the state that they add up to, as this version has them, to
tests/compat/VERSION. What is there is never written over: journals of a release stay readable for ever, and until the first
release a folder that no longer folds is removed by hand and recorded anew.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from stepgraph.v1.event_pb2 import EventBatch
from stepgraph.v1.graph_pb2 import StateGraph
from stepgraph.v1.run_service_pb2 import GetRunStateResponse
from stepgraph_server.core import run as core_run
from stepgraph_server.core.graph import GraphDefaults, compile_graph
from tests.compat.stories import STORIES, declare
from tests.support.e2e_house import history, house_with_server

HERE = Path(__file__).resolve().parent
SUFFIXES = {"graph": StateGraph, "events": EventBatch, "state": GetRunStateResponse}


def fold(graph: StateGraph, events: EventBatch, count: int | None = None) -> GetRunStateResponse:
    """Return the state that the first `count` events, or all of them, add up to, as callers read it."""
    # Not at the top: the engine is only needed for how a state is shown.
    from stepgraph_server.api.state_pages import state_page  # noqa: PLC0415
    from stepgraph_server.engine.state_at import FoldedState  # noqa: PLC0415

    compiled = compile_graph(graph, GraphDefaults())
    state = core_run.fold(events.events[0].run_started.run_id, compiled, events.events[:count])
    page, more = state_page(FoldedState(state), start=0, limit=10_000, max_bytes=1 << 30)
    assert more is None
    return page


def read(folder: Path, name: str) -> tuple[StateGraph, EventBatch, GetRunStateResponse]:
    """Return what was recorded of a story."""
    graph, events, state = (
        message.FromString((folder / f"{name}.{suffix}.binpb").read_bytes())
        for suffix, message in SUFFIXES.items()
    )
    return graph, events, state


async def record(folder: Path, name: str) -> None:
    """Play a story, and write what it leaves."""
    async with house_with_server() as (house, _):
        executor = house.executor("golden")
        declare(executor)
        await house.work(executor)
        client = await house.client()
        run, builder = await STORIES[name](house, client)
        graph = builder.build()
        events = EventBatch(events=await history(client, run.run_id))
    parts = {"graph": graph, "events": events, "state": fold(graph, events)}
    for suffix, message in parts.items():
        content = message.SerializeToString(deterministic=True)
        (folder / f"{name}.{suffix}.binpb").write_bytes(content)


def main(version: str, *names: str) -> None:
    folder = HERE / version
    folder.mkdir(exist_ok=True)
    for name in names or STORIES:
        if (folder / f"{name}.events.binpb").exists():
            print(f"{name}: is there, and stays as it is")  # noqa: T201
            continue
        asyncio.run(record(folder, name))
        print(f"{name}: recorded")  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
