"""Goto: a triage looks at a letter, and hands it to the specialist who knows about it, with what it has found out.

Start a server first: `stepgraph serve --memory`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from stepgraph_client import Client, Executor, Graph, StepContext, done, goto

if TYPE_CHECKING:
    from stepgraph.v1.llm_pb2 import LlmRequest
    from stepgraph_client.transitions import Ending

SERVER = "127.0.0.1:7233"

executor = Executor(SERVER)


class Case(BaseModel):
    """What the triage has found out."""

    topic: Literal["billing", "technical"]
    summary: str


@executor.model("reader")
def reader(request: LlmRequest) -> str:
    """Read a letter; a real model would stand here, and be held to the schema all the same."""
    letter = request.messages[-1].content[0].text.text
    if "invoice" in letter:
        return Case(topic="billing", summary="about an invoice").model_dump_json()
    return Case(topic="technical", summary="about a lamp").model_dump_json()


@executor.step("triage")
async def triage(ctx: StepContext) -> None:
    """Ask the model what it is about, and go there. A handoff edge of the graph must lead there."""
    case = await ctx.llm(str(ctx.input), model="reader", output_schema=Case).returning(Case)
    ctx.goto(case.topic, case)


@executor.step("billing")
def billing(ctx: StepContext) -> Ending:
    """Answer, or hand it back to the other one: specialists may go on as well."""
    case = ctx.input_as(Case)
    if "refund" in case.summary:
        return goto("technical", case)
    return done(f"billing takes a case {case.summary}")


@executor.step("technical")
def technical(ctx: StepContext) -> Ending:
    """Answer."""
    return done(f"technical takes a case {ctx.input_as(Case).summary}")


def letters() -> Graph:
    graph = Graph("letters")
    graph.step("triage", "triage")
    graph.step("billing", "billing")
    graph.step("technical", "technical")
    graph.edge("triage", "billing", handoff=True)
    graph.edge("triage", "technical", handoff=True)
    graph.edge("billing", "technical", handoff=True)
    return graph


async def main() -> None:
    async with Client(SERVER) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        for letter in ("My invoice is wrong.", "My lamp does not work."):
            run = await client.start_run(letters(), input=letter)
            print(await run.result())
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
