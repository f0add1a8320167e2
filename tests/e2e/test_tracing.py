"""One trace from the caller to the executor's own span: a collector gets it over OTLP from real processes."""

from __future__ import annotations

import pytest
from opentelemetry import trace

from stepgraph.v1.conversation_pb2 import ROLE_TOOL, ContentBlock, Message, ToolCallBlock
from stepgraph.v1.llm_pb2 import LLM_STOP_REASON_TOOL_CALLS, LlmResponse, Usage
from stepgraph_client import Graph, has_tool_calls, otherwise, proceed
from tests.support.e2e_house import happened
from tests.support.otlp_collector import collecting
from tests.support.otlp_program import recording

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]
TRACER = trace.get_tracer("program")
SECRET = "what nobody but the executor may read"


@pytest.fixture
async def collector(monkeypatch):
    """A collector that the server will find in its environment, and this process sends its spans to as well."""
    async with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with recording(made.endpoint, monkeypatch):
            yield made


def agent():
    """Build an agent in a loop, with an approval before the end."""
    graph = Graph("agent", default_model="clerk")
    graph.llm("think", tools=["stock"])
    graph.run_tools("look")
    graph.approval("approve", "Sure?")
    graph.assign("done")
    graph.edge("think", "look", when=has_tool_calls())
    graph.edge("look", "think")
    graph.edge("think", "approve", when=otherwise())
    graph.edge("approve", "done")
    graph.end("done")
    return graph


def hands(house):
    executor = house.executor("hands")

    @executor.tool()
    def stock(item: str) -> str:
        """Say how many there are."""
        with TRACER.start_as_current_span("look into the shelf"):
            return SECRET

    @executor.model("clerk")
    async def clerk(request) -> LlmResponse:
        usage = Usage(input_tokens=100, output_tokens=10, cached_input_tokens=40)
        if request.messages and request.messages[-1].role == ROLE_TOOL:
            text = Message(content=[ContentBlock(text={"text": SECRET})])
            return LlmResponse(message=text, usage=usage, model="clerk-2")
        call = ToolCallBlock(name="stock", args='{"item": "nuts"}', provider_id="call_1")
        return LlmResponse(
            message=Message(content=[ContentBlock(tool_call=call)]),
            stop_reason=LLM_STOP_REASON_TOOL_CALLS,
            usage=usage,
        )

    return executor


async def test_the_whole_tree_is_there_over_a_wait_for_a_person_and_a_kill(
    collector, server, house, client
):
    await house.work(hands(house))
    await client.register_graph(agent())
    with TRACER.start_as_current_span("order nuts"):
        run = await client.start_run("agent", run_id="r1", input=SECRET)
    opened = await happened(client, "r1", "interrupt_opened")
    await collector.named("node think", 2)

    await server.restart()
    with TRACER.start_as_current_span("decide"):
        await client.answer(opened.interrupt_opened.question.interrupt_id, proceed())
    await run.wait()

    await collector.one("run agent")
    await collector.named("tool stock")
    await collector.named("decide")
    assert collector.tree() == [
        "order nuts",
        "  run agent",
        "    node think",
        "      chat clerk",
        "        llm clerk",
        "    node look",
        "      execute_tool stock",
        "        tool stock",
        "          look into the shelf",
        "    node think",
        "      chat clerk",
        "        llm clerk",
        "    node approve",
        "    node done",
        "decide",
    ]
    # Who answers has a trace of their own, long after the one that the run is part of.
    [decide] = collector.of("decide")
    [approve] = collector.of("node approve")
    assert approve.links == [(decide.trace_id, decide.span_id)]
    assert approve.trace_id != decide.trace_id
    everything = b"".join(collector.raw)
    assert SECRET.encode() not in everything
    assert b'nuts"' not in everything


async def test_spans_say_what_was_done_in_the_words_of_the_conventions(
    collector, server, house, client
):
    await house.work(hands(house))
    await client.register_graph(agent())
    with TRACER.start_as_current_span("order nuts"):
        run = await client.start_run("agent", run_id="r1")
    opened = await happened(client, "r1", "interrupt_opened")
    await client.answer(opened.interrupt_opened.question.interrupt_id, proceed())
    await run.wait()

    of_run = await collector.one("run agent")
    assert of_run.attributes == {
        "stepgraph.namespace": "default",
        "stepgraph.run.id": "r1",
        "stepgraph.run.status": "completed",
        "stepgraph.run.supersteps": 5,
        "stepgraph.graph.name": "agent",
        "stepgraph.graph.version": 1,
        "stepgraph.graph.digest": of_run["stepgraph.graph.digest"],
        "stepgraph.usage.input_tokens": 200,
        "stepgraph.usage.output_tokens": 20,
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": "agent",
    }
    assert of_run.resource["service.name"] == "stepgraph"
    assert of_run.resource["deployment.environment.name"] == "test"
    first, second = collector.of("chat clerk")
    assert first.kind == "CLIENT"
    assert first.attributes == {
        "stepgraph.namespace": "default",
        "stepgraph.run.id": "r1",
        "stepgraph.graph.name": "agent",
        "stepgraph.graph.version": 1,
        "stepgraph.node.id": "think",
        "stepgraph.task.id": "r1/1/think/t0/e0",
        "stepgraph.attempt": 1,
        "stepgraph.executor.id": "hands",
        "stepgraph.queue_ms": 0,
        "stepgraph.outcome": "completed",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "stepgraph",
        "gen_ai.conversation.id": "r1",
        "gen_ai.request.model": "clerk",
        "gen_ai.response.finish_reasons": ["tool_call"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 40,
    }
    assert second["gen_ai.response.model"] == "clerk-2"
    assert second["gen_ai.response.finish_reasons"] == ["stop"]
    tool = await collector.one("execute_tool stock")
    assert tool["gen_ai.tool.name"] == "stock"
    assert tool["gen_ai.tool.call.id"]
    assert tool["gen_ai.operation.name"] == "execute_tool"
    approve = await collector.one("node approve")
    assert approve["stepgraph.node.kind"] == "human_approval"
    assert [name for name, _ in approve.events] == ["interrupt.opened", "interrupt.answered"]
