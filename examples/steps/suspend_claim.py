"""Suspend: a claim waits for a person, for the bank, and for the end of the month; each may take as long as it likes.

A run that waits costs no memory, and goes on after any restart. Here the program itself plays everybody.
Start a server first: `stepgraph serve --memory`.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client import Client, EffectFailed, Executor, Graph, StepContext, failed, reply

SERVER = "127.0.0.1:7233"

executor = Executor(SERVER)


class Verdict(BaseModel):
    """What the manager says."""

    ok: bool
    most: int


@executor.tool()
def order_payment(amount: int) -> str:
    """Order a payment; the bank answers later, by this token."""
    return f"payment-of-{amount}"


@executor.step("claim")
async def claim(ctx: StepContext) -> str:
    """Ask, pay, wait for the end of the month, and book it."""
    amount = ctx.input_as(int)
    verdict = await ctx.ask(
        f"Pay {amount}?", Verdict, timeout="30d", default_answer={"ok": False, "most": 0}
    )
    if not verdict.ok:
        return "nothing is paid"
    token = await ctx.tool("order_payment", amount=min(amount, verdict.most))
    try:
        receipt = await ctx.external(str(token))
    except EffectFailed as error:
        return f"the bank says {error.code}"
    month = await ctx.signal("month_end", timeout="40d", default_answer="a month")
    return f"booked {receipt} in {month}"


async def play(client: Client, amount: int, verdict: Verdict, *, paid: bool) -> object:
    graph = Graph("claims")
    graph.step("claim", "claim")
    run = await client.start_run(graph, input=amount)
    async for event in run.events():
        if not isinstance(event, RunEvent) or not event.HasField("interrupt_opened"):
            continue
        question = event.interrupt_opened.question
        match question.reason.WhichOneof("kind"):
            case "human":
                await client.answer(question.interrupt_id, reply(verdict), answered_by="ann")
            case "external":
                answer = reply("receipt-1") if paid else failed("NO_MONEY", "the account is empty")
                await client.answer_external(question.reason.external.token, answer)
            case _:
                await client.signal(run.run_id, "month_end", "May")
    return await run.result()


async def main() -> None:
    async with Client(SERVER) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        print(await play(client, 50, Verdict(ok=True, most=100), paid=True))
        print(await play(client, 500, Verdict(ok=True, most=100), paid=False))
        print(await play(client, 5, Verdict(ok=False, most=0), paid=True))
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
