"""A person approves single tool calls. Start a server first: `stepgraph serve --memory`.

The model asks for three calls at once. Looking needs nobody, and goes on while a person reads the other two questions: one transfer is
approved with another sum, the other is refused with a reason, which the model reads as the result of its call.

Here the program itself answers. In a terminal of your own, `stepgraph interrupts` lists what is asked and `stepgraph answer` answers it.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from stepgraph.v1.conversation_pb2 import ROLE_TOOL, ContentBlock, Message, ToolCallBlock
from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client import (
    Client,
    Executor,
    Graph,
    has_tool_calls,
    is_final_answer,
    proceed_with,
    revise,
)

if TYPE_CHECKING:
    from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptAnswer
    from stepgraph.v1.llm_pb2 import LlmRequest

SERVER = "127.0.0.1:7233"
executor = Executor(SERVER)


@executor.tool()
def balance(account: str) -> str:
    """Look how much is on an account."""
    return f"120 on {account}"


@executor.tool(requires_approval=True)
def transfer(to: str, amount: int) -> str:
    """Send money."""
    return f"sent {amount} to {to}"


def call(name: str, **args: object) -> ContentBlock:
    return ContentBlock(tool_call=ToolCallBlock(name=name, args=json.dumps(args)))


@executor.model("clerk")
def clerk(request: LlmRequest) -> Message | str:
    """Stand in for a model: ask for three calls, then tell what came of them."""
    results = [message for message in request.messages if message.role == ROLE_TOOL]
    if results:
        return "; ".join(each.content[0].tool_result.content[0].text.text for each in results)
    landlord = call("transfer", to="landlord", amount=900)
    stranger = call("transfer", to="stranger", amount=50)
    return Message(content=[call("balance", account="rent"), landlord, stranger])


def agent() -> Graph:
    """Return the graph: think, do what was asked for, think again."""
    graph = Graph("payments")
    graph.llm("think", model="clerk", tools=True)
    graph.run_tools("act")
    graph.assign("done")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("act", "think")
    graph.edge("think", "done", when=is_final_answer())
    return graph


def review(question: Interrupt) -> InterruptAnswer:
    """Say what a person would, who sees the call as it would be made."""
    args = json.loads(question.tool.args)
    if args["to"] != "landlord":
        return revise("we don't know them")
    return proceed_with(tool_args=args | {"amount": 90})


async def main() -> None:
    async with Client(SERVER) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(executor.run())
        # A model is offered the tools that there are when it is asked.
        await executor.connected()
        run = await client.start_run(agent(), messages=["Pay the rent."])
        async for event in run.events():
            if isinstance(event, RunEvent) and event.HasField("interrupt_opened"):
                question = event.interrupt_opened.question
                print(f"{question.reason.human.prompt} {question.tool.args}")
                await client.answer(question.interrupt_id, review(question), answered_by="anna")
        print(await run.result())
        executor.stop()


if __name__ == "__main__":
    asyncio.run(main())
