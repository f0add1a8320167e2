"""Child runs: each claim of a list is a run of its own, which may wait for a person by itself. Start a server first: `stepgraph serve --memory`.

A child run has a journal, a state and questions of its own. It is listed, watched and cancelled with its parent; what it found comes
back as the result of the node that ran it, in the order of the list, whoever was answered first.
"""

from __future__ import annotations

import asyncio
import json

from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client import (
    Client,
    Executor,
    Graph,
    abort,
    expression,
    otherwise,
    proceed,
)

SERVER = "127.0.0.1:7233"
CLAIMS = [
    {"what": "train", "euros": 40},
    {"what": "hotel", "euros": 900},
    {"what": "yacht", "euros": 9000},
]

executor = Executor(SERVER)


@executor.tool()
def pay(what: str, euros: int) -> str:
    """Pay a claim."""
    return f"paid {euros} for the {what}"


def claim() -> Graph:
    """Return the graph of one claim: small ones are paid, others need a person."""
    graph = Graph("claim")
    graph.assign("look")
    graph.approval("ask", "Pay {{claim.euros}} for the {{claim.what}}?")
    graph.tool(
        "pay", "pay", {"what": "{{claim.what}}", "euros": "{{claim.euros}}"}, output="answer"
    )
    graph.edge("look", "pay", when=expression("vars.claim.euros < 100"))
    graph.edge("look", "ask", when=otherwise())
    graph.edge("ask", "pay")
    return graph


def expenses() -> Graph:
    """Return the graph of all claims: a child run for each. One that fails stops none of the others."""
    graph = Graph("expenses")
    graph.map("claims", "vars.claims", body="one", join_policy="all_settled")
    graph.subgraph(
        "one", claim(), input={"claim": "{{item}}"}, output_variables={"answer": "answer"}
    )
    return graph


async def main() -> None:
    async with Client(SERVER) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        run = await client.start_run(expenses(), variables={"claims": CLAIMS})
        async for news in client.watch_tree(run.run_id):
            if isinstance(news.event, RunEvent) and news.event.HasField("interrupt_opened"):
                question = news.event.interrupt_opened.question
                print(f"a child run asks: {question.reason.human.prompt}")
                too_much = "yacht" in question.reason.human.prompt
                answer = abort("we have one already") if too_much else proceed()
                await client.answer(question.interrupt_id, answer)
        print(json.dumps(await run.result(), indent=1))
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
