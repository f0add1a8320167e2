"""What spans say: every attribute, as a constant with its meaning. docs/observability.md lists the same.

Rules: no payload is an attribute: no prompt, no argument, no output, no message of a failure. Names of OpenTelemetry's
conventions mean what they mean there; what is ours begins with `stepgraph.`.
"""

from __future__ import annotations

from typing import Final

NAMESPACE: Final = "stepgraph.namespace"
RUN_ID: Final = "stepgraph.run.id"
RUN_STATUS: Final = "stepgraph.run.status"
RUN_SUPERSTEPS: Final = "stepgraph.run.supersteps"
GRAPH_NAME: Final = "stepgraph.graph.name"
GRAPH_VERSION: Final = "stepgraph.graph.version"
GRAPH_DIGEST: Final = "stepgraph.graph.digest"
NODE_ID: Final = "stepgraph.node.id"
NODE_KIND: Final = "stepgraph.node.kind"
SUPERSTEP: Final = "stepgraph.superstep"
TASK_ID: Final = "stepgraph.task.id"
ATTEMPT: Final = "stepgraph.attempt"
EXECUTOR_ID: Final = "stepgraph.executor.id"
QUEUE_MS: Final = "stepgraph.queue_ms"
OUTCOME: Final = "stepgraph.outcome"
INTERRUPT_ID: Final = "stepgraph.interrupt.id"
INPUT_TOKENS_TOTAL: Final = "stepgraph.usage.input_tokens"
OUTPUT_TOKENS_TOTAL: Final = "stepgraph.usage.output_tokens"
ERROR_TYPE: Final = "error.type"
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
WORKFLOW: Final = "gen_ai.workflow.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
AGENT_NAME: Final = "gen_ai.agent.name"

ATTRIBUTES: Final[dict[str, tuple[str, str]]] = {
    NAMESPACE: ("run, node, attempt", "The namespace of the run"),
    RUN_ID: ("run, node, attempt", "The run"),
    RUN_STATUS: ("run", "How it ended: `completed`, `failed` or `cancelled`"),
    RUN_SUPERSTEPS: ("run", "How many supersteps it took"),
    GRAPH_NAME: ("run, node, attempt", "The graph; absent for one that was given inline"),
    GRAPH_VERSION: ("run, node, attempt", "Its version; absent for one that was given inline"),
    GRAPH_DIGEST: ("run", "The digest of its definition"),
    INPUT_TOKENS_TOTAL: ("run", "Tokens that models read in the whole run"),
    OUTPUT_TOKENS_TOTAL: ("run", "Tokens that models wrote in the whole run"),
    WORKFLOW: ("run", "The graph, as the conventions call it"),
    NODE_ID: ("node, attempt", "The node"),
    NODE_KIND: ("node", "The kind of its action, such as `llm_infer`"),
    SUPERSTEP: ("node", "The superstep that it ran in"),
    TASK_ID: ("attempt", "The full id of the task, as executors see it"),
    ATTEMPT: ("attempt", "The number of the attempt, from 1"),
    EXECUTOR_ID: ("attempt", "Who had it"),
    QUEUE_MS: ("attempt", "How long the task had waited for an executor before, in ms"),
    OUTCOME: (
        "node, attempt",
        "How it ended: `completed`, `failed`, `cancelled`; `lost` for attempts only; `unreported` if its run ended without a word of it",
    ),
    INTERRUPT_ID: ("events of a node", "The question that was asked, answered or closed"),
    ERROR_TYPE: ("run, node, attempt", "The code of the failure, such as `RUN_LIMIT`"),
    OPERATION: (
        "run, attempt",
        "`invoke_workflow` for a run; `chat`, `execute_tool` or `invoke_agent` for an attempt; absent for conditions and custom work",
    ),
    PROVIDER: (
        "attempt with an operation",
        "`stepgraph`: an executor was asked, and whom that asks is seen in its own spans",
    ),
    CONVERSATION_ID: ("attempt of a model or an agent", "The run"),
    REQUEST_MODEL: ("attempt of a model", "The model that was asked"),
    RESPONSE_MODEL: ("attempt of a model", "The model that answered, if the executor names it"),
    FINISH_REASONS: (
        "attempt of a model",
        "Why it stopped: `stop`, `tool_call`, `length`, `content_filter` or `other`",
    ),
    INPUT_TOKENS: ("attempt of a model or an agent", "Tokens read"),
    OUTPUT_TOKENS: ("attempt of a model or an agent", "Tokens written"),
    CACHED_INPUT_TOKENS: ("attempt of a model or an agent", "Of those read, from the cache"),
    REASONING_TOKENS: ("attempt of a model or an agent", "Of those written, of hidden reasoning"),
    TOOL_NAME: ("attempt of a tool", "The tool"),
    TOOL_TYPE: ("attempt of a tool", "`function`"),
    TOOL_CALL_ID: ("attempt of a tool or an agent", "The call that a model asked for"),
    AGENT_NAME: ("attempt of an agent", "The kind of agent"),
}
"""Where each attribute stands, and what it means."""
