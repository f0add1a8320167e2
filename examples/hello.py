"""The smallest executor, graph and run. Start a server first: `stepgraph serve --memory`."""

from __future__ import annotations

import asyncio

from stepgraph_client import Client, Executor, Graph


async def main() -> None:
    executor = Executor("127.0.0.1:7233")

    @executor.tool()
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Hello, {name}!"

    graph = Graph("hello")
    graph.tool("greeting", "greet", {"name": "{{input}}"})
    graph.end("greeting")

    async with Client("127.0.0.1:7233") as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        run = await client.start_run(graph, input="world")
        print(await run.result())
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
