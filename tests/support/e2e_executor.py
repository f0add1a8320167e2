"""An executor in a process of its own, to be killed: python -m tests.support.e2e_executor SERVER EXECUTOR_ID.

Its output is its ledger: a line for each call. The tool `work` returns at once, and `hold` never does. The step program `walk` has
the tool `act` of somebody else do its input, one after the other.
"""

from __future__ import annotations

import asyncio
import sys

from stepgraph_client import Executor, StepContext, TaskContext


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201


def executor(server: str, executor_id: str) -> Executor:
    made = Executor(server, executor_id=executor_id, max_in_flight=4)

    @made.tool()
    def work(ctx: TaskContext) -> str:
        """Work."""
        say("worked", ctx.idempotency_key)
        return executor_id

    @made.tool()
    async def hold(ctx: TaskContext) -> str:
        """Work for ever."""
        say("holds", ctx.idempotency_key)
        await asyncio.Event().wait()
        return executor_id

    @made.step("walk")
    async def walk(ctx: StepContext) -> list[object]:
        say("begins", ctx.run_id)
        done = [await ctx.tool("act", what=what) for what in ctx.input_as(list[str])]
        say("ends", ctx.run_id)
        return done

    return made


async def main(server: str, executor_id: str) -> None:
    made = executor(server, executor_id)
    async with asyncio.TaskGroup() as group:
        group.create_task(made.run())
        await made.connected()
        say("connected")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
