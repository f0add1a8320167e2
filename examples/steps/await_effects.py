"""Await: three shops are asked at once, offers are taken as they come, and who is too slow is not waited for.

Start a server first: `stepgraph serve --memory`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stepgraph_client import Client, EffectFailed, Executor, Failed, Graph, StepContext

if TYPE_CHECKING:
    from stepgraph.v1.llm_pb2 import LlmRequest

SERVER = "127.0.0.1:7233"

executor = Executor(SERVER)


@executor.tool()
async def offer(shop: str, item: str) -> float:
    """Ask a shop what something costs."""
    if shop == "corner":
        code = "CLOSED"
        raise Failed(code, f"the {shop} shop has no {item} today")
    await asyncio.sleep({"market": 0.05, "harbour": 60}[shop])
    return {"market": 9.5, "harbour": 8.0}[shop]


@executor.model("clerk")
def clerk(request: LlmRequest) -> str:
    """Write a note; a real model would stand here."""
    return "Take the market's offer." if request.messages else "Take none."


@executor.step("compare")
async def compare(ctx: StepContext) -> dict[str, object]:
    """Collect offers until one is there and a second has passed."""
    shops = ["market", "harbour", "corner"]
    asked = [ctx.tool("offer", shop=shop, item=ctx.input) for shop in shops]
    offers: dict[str, object] = {}
    async for done in ctx.each(*asked, ctx.sleep("1s")):
        if done.index == len(shops):
            break  # the second is over; the harbour is cancelled when the program ends
        try:
            offers[shops[done.index]] = done.value
        except EffectFailed as error:
            offers[shops[done.index]] = error.code
    note = await ctx.llm(f"Which one? {offers}", model="clerk")
    return {"offers": offers, "note": note.text}


async def main() -> None:
    graph = Graph("compare")
    graph.step("compare", "compare")
    async with Client(SERVER) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        run = await client.start_run(graph, input="lamp")
        print(await run.result())
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
