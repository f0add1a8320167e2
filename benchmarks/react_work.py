"""The work that is measured: an agent in a loop, ten times a model and a tool, then the model's answer.

That is 21 node executions a run. Replies and tool results have about 500 bytes, and the conversation is kept.
"""

from __future__ import annotations

from stepgraph.v1.conversation_pb2 import (
    ROLE_ASSISTANT,
    ContentBlock,
    Message,
    TextBlock,
    ToolCallBlock,
)
from stepgraph.v1.llm_pb2 import (
    LLM_STOP_REASON_END,
    LLM_STOP_REASON_TOOL_CALLS,
    LlmResponse,
    ToolDefinition,
    Usage,
)
from stepgraph.v1.transition_pb2 import ToolResult
from stepgraph.v1.value_pb2 import Value
from stepgraph_client import Graph, has_tool_calls, otherwise

TURNS = 10
#: The superstep in which the model answers.
ANSWERING_SUPERSTEP = 2 * TURNS + 1
NODES_PER_RUN = 2 * TURNS + 1

MODEL = "benchmark-model"
TOOL = ToolDefinition(
    name="lookup",
    description="Looks something up.",
    input_schema='{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]}',
)
_WORDS = "the run goes on where it was and nothing that was done is done again "


def _text(size: int) -> str:
    return (_WORDS * (size // len(_WORDS) + 1))[:size]


CALL = LlmResponse(
    message=Message(
        role=ROLE_ASSISTANT,
        content=[
            ContentBlock(text=TextBlock(text=_text(420))),
            ContentBlock(
                tool_call=ToolCallBlock(
                    name=TOOL.name, args='{"query":"what is next"}', provider_id="call_0123456789"
                )
            ),
        ],
    ),
    stop_reason=LLM_STOP_REASON_TOOL_CALLS,
    usage=Usage(input_tokens=900, output_tokens=110),
)
ANSWER = LlmResponse(
    message=Message(role=ROLE_ASSISTANT, content=[ContentBlock(text=TextBlock(text=_text(500)))]),
    stop_reason=LLM_STOP_REASON_END,
    usage=Usage(input_tokens=2_000, output_tokens=120),
)
TOOL_OUTPUT = ToolResult(output=Value(text=_text(500)))
#: What executors give in one run: less than this nobody can store.
PAYLOAD_BYTES_PER_RUN = TURNS * (CALL.ByteSize() + TOOL_OUTPUT.ByteSize()) + ANSWER.ByteSize()


def react_graph() -> Graph:
    """Return the graph."""
    graph = Graph("react", default_model=MODEL, max_iterations=NODES_PER_RUN + 1)
    graph.llm("think", tools=[TOOL.name])
    graph.run_tools("act")
    graph.assign("done")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("think", "done", when=otherwise())
    graph.edge("act", "think")
    graph.start("think")
    graph.end("done")
    return graph
