"""The same work by our own Executor, as users write it: `python -m benchmarks.client_executor`."""

from __future__ import annotations

import argparse
import asyncio
import signal

from benchmarks.react_work import ANSWER, ANSWERING_SUPERSTEP, CALL, MODEL, TOOL, TOOL_OUTPUT

# Types of functions are read when they are declared, so these are imported for more than the type checker.
from stepgraph.v1.llm_pb2 import LlmRequest, LlmResponse  # noqa: TC001
from stepgraph.v1.transition_pb2 import ToolResult  # noqa: TC001
from stepgraph_client import Executor, TaskContext


def executor(server: str, executor_id: str) -> Executor:
    """Return the executor."""
    made = Executor(server, executor_id=executor_id, max_in_flight=10_000)

    @made.model(MODEL)
    async def think(request: LlmRequest, ctx: TaskContext) -> LlmResponse:
        del request
        superstep = int(ctx.task_id.split("/", 2)[1])
        return ANSWER if superstep >= ANSWERING_SUPERSTEP else CALL

    @made.tool(name=TOOL.name, description=TOOL.description)
    async def lookup(query: str) -> ToolResult:
        del query
        return TOOL_OUTPUT

    return made


async def serve(made: Executor) -> None:
    """Run, and say when it is connected."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, made.stop)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(made.run())
        await made.connected()
        print("ready", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="127.0.0.1:7233")
    parser.add_argument("--executor-id", default="client")
    given = parser.parse_args()
    asyncio.run(serve(executor(given.server, given.executor_id)))


if __name__ == "__main__":
    main()
