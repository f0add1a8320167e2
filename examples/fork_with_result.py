"""What if? A run is forked behind its past, and a tool's result is another one. Start a server first: `stepgraph serve --memory`.

The order is declined, because the price is too high. Nobody wants to run all of it again with a cheaper supplier only to see what
would have happened: the fork begins just before the price was known, is told another one, and goes on from there. What had been
done before is not done again, and the first run stays as it was.
"""

from __future__ import annotations

import asyncio

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client import Client, Executor, Graph, another_result, expression, otherwise

SERVER = "127.0.0.1:7233"


def tools(calls: list[str]) -> Executor:
    """Return an executor that notes each call of its tools."""
    executor = Executor(SERVER)

    @executor.tool()
    def find_supplier(item: str) -> str:
        """Find who sells something. It takes long and costs money."""
        calls.append("find_supplier")
        return f"the {item} shop"

    @executor.tool()
    def price(supplier: str) -> int:
        """Ask a supplier for the price."""
        calls.append("price")
        return 100 + len(supplier)

    @executor.tool()
    def order(supplier: str) -> str:
        """Order it."""
        calls.append("order")
        return f"ordered at {supplier}"

    return executor


def buying() -> Graph:
    """Return the graph: find a supplier, ask for the price, order if that is below 100."""
    graph = Graph("buying")
    graph.tool("find", "find_supplier", {"item": "{{input}}"}, output="supplier")
    graph.tool("ask", "price", {"supplier": "{{supplier}}"}, output="price")
    graph.tool("order", "order", {"supplier": "{{supplier}}"})
    graph.assign("declined", {"why": "'it costs ' + string(vars.price)"})
    graph.edge("find", "ask")
    graph.edge("ask", "order", when=expression("vars.price < 100"))
    graph.edge("ask", "declined", when=otherwise())
    return graph


async def main() -> None:
    calls: list[str] = []
    executor = tools(calls)
    async with Client(SERVER) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        run = await client.start_run(buying(), input="lamp")
        # The event behind which the price is outstanding, and its task.
        asked, task_id = 0, ""
        async for event in run.events():
            if isinstance(event, RunEvent) and event.task_scheduled.label == "tool price":
                asked, task_id = event.sequence, event.task_scheduled.task_id
        why = (await run.state()).variables["why"]
        print(f"the run:  declined, {why}; called {', '.join(calls)}")

        calls.clear()
        cheaper = another_result(task_id, 80)
        fork = await client.fork(run.run_id, sequence=asked, changes=[cheaper])
        print(f"the fork: {await fork.result()}; called {', '.join(calls)}")
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
