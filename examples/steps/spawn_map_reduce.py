"""Spawn: map and reduce over real files. One piece of work per file, a few at once; a file that can't be read stops nobody.

Start a server first: `stepgraph serve --memory`. Then: `python examples/steps/spawn_map_reduce.py [folder]`.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from pathlib import Path

from stepgraph_client import Client, EffectFailed, Executor, Graph, StepContext, program

SERVER = "127.0.0.1:7233"

executor = Executor(SERVER)


@executor.tool()
def find_files(folder: str) -> list[str]:
    """List the pages of a folder."""
    return [str(path) for path in sorted(Path(folder).rglob("*.md"))]


@executor.tool()
def count_words(path: str) -> dict[str, int]:
    """Count the long words of a page."""
    words = re.findall(r"[a-z]{9,}", Path(path).read_text(encoding="utf-8").lower())
    return dict(Counter(words).most_common(50))


@executor.step("survey")
async def survey(ctx: StepContext) -> dict[str, object]:
    """Find the files, map over them, and reduce what came back."""
    paths = await ctx.tool("find_files", folder=ctx.input).returning(list[str])
    counts = await ctx.spawn(
        [program("one_file", path) for path in [*paths, "no/such/file.md"]],
        join="all_settled",
        max_concurrency=8,
        returning=dict[str, int],
    )
    total: Counter[str] = Counter()
    unread = 0
    for each in counts:
        if isinstance(each, EffectFailed):
            unread += 1
        else:
            total.update(each)
    return {"files": len(paths), "unread": unread, "most": total.most_common(1)[0][0]}


@executor.step("one_file")
async def one_file(ctx: StepContext) -> object:
    """Map: what is known of one file. It could ask a model, wait for a person, or spawn work of its own."""
    return await ctx.tool("count_words", path=ctx.input)


async def main() -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else "docs"
    graph = Graph("survey")
    graph.step("survey", "survey")
    async with Client(SERVER) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        run = await client.start_run(graph, input=folder)
        print(await run.result())
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
