"""Runs that between them write every kind of event: what a journal of this version can hold.

A story starts runs on a server and brings them to a point where they stay: at their end, or waiting.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from stepgraph.v1.conversation_pb2 import ContentBlock, Message, ToolCallBlock
from stepgraph.v1.llm_pb2 import LlmResponse, Usage
from stepgraph_client import (
    Failed,
    Graph,
    ToolError,
    abort,
    custom,
    error_occurred,
    has_tool_calls,
    is_final_answer,
    limits,
    otherwise,
    proceed,
    proceed_with,
    requests_delegation,
    retry,
    state_equals,
)
from tests.support.e2e_house import happened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stepgraph_client import Client, Executor, RunHandle
    from tests.support.e2e_house import House

    Story: TypeAlias = "Callable[[House, Client], Awaitable[tuple[RunHandle, Graph]]]"


def declare(executor: Executor) -> None:
    """Let an executor do what the stories need."""
    declare_model(executor)
    declare_tools(executor)

    @executor.agent("helper")
    async def help_(task: str) -> str:
        return f"did {task}"

    @executor.condition("good")
    async def good() -> bool:
        return True


def declare_model(executor: Executor) -> None:
    @executor.model("golden*")
    async def model(request) -> object:
        results = sum(
            block.HasField("tool_result")
            for message in request.messages
            for block in message.content
        )
        if results == 2:
            return reply(call("delegate", '{"agent_kind":"helper","task":"help"}'))
        if results > 2:
            return LlmResponse(
                message=Message(role=3, content=[ContentBlock(text={"text": "The end."})]),
                usage=Usage(input_tokens=300, output_tokens=30, cached_input_tokens=200),
            )
        return reply(call("search", '{"query":"a"}', "p1"), call("search", '{"query":"b"}'))


def declare_tools(executor: Executor) -> None:
    @executor.tool()
    async def search(query: str) -> dict:
        if query == "b":
            message = "nothing was found"
            raise ToolError(message)
        return {"found": [1, 1.0, 9007199254740993], "query": query}

    @executor.tool()
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    @executor.tool()
    async def fail(code: str) -> str:
        raise Failed(code, "as asked", retryable=True, details={"why": "a story"})

    @executor.tool()
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"


def reply(*calls: ToolCallBlock) -> LlmResponse:
    content = [
        ContentBlock(text={"text": "I will look."}),
        *(ContentBlock(tool_call=c) for c in calls),
    ]
    return LlmResponse(
        message=Message(role=3, content=content), usage=Usage(input_tokens=100, output_tokens=10)
    )


def call(name: str, args: str, given: str = "") -> ToolCallBlock:
    return ToolCallBlock(id=given, name=name, args=args)


async def open_question(client: Client, run_id: str) -> str:
    opened = await happened(client, run_id, "interrupt_opened")
    return opened.interrupt_opened.question.interrupt_id


async def react(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """A model, its tools, a delegation; paradigms, labels, a token limit."""
    graph = Graph("react", default_model="golden-1")
    graph.paradigm("careful", "Be careful with {{topic}}.")
    graph.switch_paradigm("begin", "careful")
    graph.llm("think", tools=True, prompt="Look into {{topic}}.", output="said")
    graph.run_tools("act")
    graph.delegate("ask", output="helped")
    graph.check("check", "said")
    graph.chain("begin", "think")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("think", "ask", when=requests_delegation())
    graph.edge("think", "check", when=is_final_answer())
    graph.edge("act", "think")
    graph.edge("ask", "think")
    graph.end("check")
    run = await client.start_run(
        graph,
        variables={"topic": "clocks"},
        messages=["Hello."],
        labels={"team": "gold"},
        token_limit=10_000,
    )
    await run.wait()
    return run, graph


async def parallel(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """Branches, every reducer, an overwritten variable, a node that is skipped, a join."""
    graph = Graph("parallel")
    graph.assign("start", {"log": "'begin'"}, message="from {{who}}")
    for number in range(3):
        graph.assign(
            f"b{number}",
            {
                "log": f"'b{number}'",
                "total": f"{number} + 1",
                "least": f"{number}",
                "most": f"{number}",
                "all": f"{{'b{number}': {number}}}",
                "last": f"'b{number}'",
            },
        )
        graph.edge("start", f"b{number}")
        graph.edge(f"b{number}", "join")
    graph.assign("never")
    graph.edge("start", "never", when=state_equals("who", "nobody"))
    graph.edge("never", "join")
    graph.assign("join", unset=["last"], join="all")
    graph.assign("end")
    graph.edge("join", "end", when=custom("good", "Is it good?"))
    graph.edge("join", "end", when=otherwise())
    graph.end("end")
    for name, how in {
        "log": "append",
        "total": "sum",
        "least": "min",
        "most": "max",
        "all": "merge",
    }.items():
        graph.reducer(name, how)
    run = await client.start_run(graph, variables={"who": "somebody"}, input={"n": 1.0})
    await run.wait()
    return run, graph


async def failing(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """Tries, an error edge, a branch that fails for good while another one works."""
    graph = Graph("failing", retry=retry(max_tries=2, first_delay="10ms", jitter=0))
    graph.tool("first", "fail", {"code": "BUSY"})
    graph.assign("taken_up", {"code": "last_error.code"})
    graph.tool("second", "fail", {"code": "BROKEN"}, retry=retry(max_tries=1))
    graph.tool("beside", "hang", {})
    graph.edge("first", "taken_up", when=error_occurred("BUSY"))
    graph.edge("taken_up", "second")
    graph.edge("taken_up", "beside")
    run = await client.start_run(graph)
    await run.wait()
    return run, graph


async def asked(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """A question with choices and one about a tool call that gets other arguments."""
    graph = Graph("asked")
    graph.approval("choose", "Go on?", {"yes": "Yes", "no": "No"})
    graph.tool("pay", "pay", {"amount": 100}, interrupt=True, output="paid")
    graph.chain("choose", "pay")
    graph.end("pay")
    run = await client.start_run(graph)
    first = await open_question(client, run.run_id)
    await client.answer(first, proceed(), answered_by="Ada")
    second = (await happened(client, run.run_id, "interrupt_opened", 2)).interrupt_opened.question
    await client.answer(
        second.interrupt_id,
        proceed_with({"note": "less"}, tool_args={"amount": 50}, message="Only half."),
        answered_by="Bob",
    )
    await run.wait()
    return run, graph


async def refused(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """Two questions; one is aborted, so the other is closed."""
    graph = Graph("refused")
    graph.assign("start")
    for name in ("one", "two"):
        graph.approval(name, f"Question {name}?")
        graph.edge("start", name)
    run = await client.start_run(graph)
    await happened(client, run.run_id, "interrupt_opened", 2)
    await client.answer(
        await open_question(client, run.run_id), abort("not today"), answered_by="Ada"
    )
    await run.wait()
    return run, graph


async def waiting(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """Still under way: an open question, a task that nobody can take, one that is tried again in a year."""
    graph = Graph("waiting")
    graph.assign("start", {"x": "1"})
    graph.approval("ask", "Go on?")
    graph.tool("nobody", "unknown_tool", {}, limits=limits(queue="8760h"))
    graph.tool(
        "later",
        "fail",
        {"code": "BUSY"},
        retry=retry(first_delay="8760h", max_delay="8760h", jitter=0),
    )
    for name in ("ask", "nobody", "later"):
        graph.edge("start", name)
    run = await client.start_run(graph)
    await happened(client, run.run_id, "task_unclaimed")
    await happened(client, run.run_id, "task_failed")
    await happened(client, run.run_id, "interrupt_opened")
    return run, graph


async def moved(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """An executor leaves with a task, another one takes it, and the run is cancelled."""
    graph = Graph("moved", max_iterations=9)
    graph.tool("work", "leave", {})
    executors = [house.executor(f"leaver{number}") for number in range(2)]
    for executor in executors:

        @executor.tool()
        async def leave() -> str:
            await house.ledger.note("leave")
            await asyncio.Event().wait()
            return "never"

        await house.work(executor)
    run = await client.start_run(graph, time_limit="1h")
    await house.ledger.called("leave")
    scheduled = (await happened(client, run.run_id, "task_scheduled")).task_scheduled
    [first] = [e for e in executors if e.executor_id == scheduled.assignment.executor_id]
    await house.leave(first)
    await house.ledger.called("leave", 2)
    await client.cancel(run.run_id, "enough")
    await run.wait()
    return run, graph


async def looping(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """A loop that ends by the cap on supersteps."""
    graph = Graph("looping", max_iterations=3)
    graph.assign("a", {"n": "1"})
    graph.assign("b")
    graph.edge("a", "b")
    graph.edge("b", "a")
    graph.reducer("n", "sum")
    run = await client.start_run(graph)
    await run.wait()
    return run, graph


async def nested(house: House, client: Client) -> tuple[RunHandle, Graph]:
    """A graph in a graph: the inner one asks a person, and its output comes back."""
    del house
    inner = Graph("inner")
    inner.approval("ask", "Go on with {{topic}}?")
    inner.assign("keep", {"kept": "vars.topic"})
    inner.edge("ask", "keep")
    graph = Graph("nested")
    given, wanted = {"topic": "{{subject}}"}, {"result": "kept", "extra": "missing?"}
    graph.subgraph("sub", inner, input=given, output_variables=wanted)
    run = await client.start_run(graph, variables={"subject": "bees"})
    await happened(client, run.run_id, "child_status_changed")
    async for question in client.interrupts(run.run_id, include_descendants=True):
        await client.answer(question.interrupt_id, proceed())
    await run.wait()
    return run, graph


STORIES: Mapping[str, Story] = {
    story.__name__: story
    for story in (react, parallel, failing, asked, refused, waiting, moved, looping, nested)
}
