"""The keywords that nodes, edges and graphs take in the builder, typed once.

Rules: only declarations. A name that differs from the schema's says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1.graph_pb2 import ContextWindow
    from stepgraph.v1.interrupt_pb2 import InterruptOptions
    from stepgraph.v1.llm_pb2 import ToolChoice, ToolFilter
    from stepgraph.v1.policy_pb2 import RetryPolicy, TaskLimits
    from stepgraph_client.durations import Span
    from stepgraph_client.json_text import JsonLike

#: Which tools: all or none of them, names (or prefixes that end in `*`), or a filter with a deny list.
Tools: TypeAlias = "bool | str | Sequence[str] | ToolFilter"


class GraphOptions(TypedDict, total=False):
    """What `Graph(…)` takes. `approval`: which tools need a person (the schema's approval_filter); True means all."""

    default_model: str
    max_iterations: int
    time_limit: Span
    retry: RetryPolicy
    limits: TaskLimits
    approval: Tools
    metadata: Mapping[str, str]


class NodeOptions(TypedDict, total=False):
    """What every node takes.

    `interrupt`: a person is asked before the action runs; `question(…)` says how that looks. `output`: the variable
    that gets the result (output_variable). `append=False` keeps prompt, reply and output out of the conversation.
    """

    interrupt: bool | InterruptOptions
    retry: RetryPolicy
    limits: TaskLimits
    join: Literal["any", "all"]
    output: str
    selector: Mapping[str, str]
    metadata: Mapping[str, str]
    answers: str
    append: bool


class LlmOptions(NodeOptions, total=False):
    """What `llm` takes. `tools=True`: all that there are; names or a filter: these; False: no definitions at all."""

    prompt: str
    system_prompt: str
    model: str
    tools: Tools
    streaming: bool
    temperature: float
    max_tokens: int
    thinking_budget: int
    output_schema: JsonLike
    tool_choice: ToolChoice
    context: ContextWindow
    provider_options: JsonLike


class StepOptions(NodeOptions, total=False):
    """What `step` takes. `input` is the schema's input_template."""

    input: JsonLike
    max_turns: int
    variables: Sequence[str]
    include_conversation: bool


class MapOptions(NodeOptions, total=False):
    """What `map` takes: one of `body` (a node) and `program`. `join_policy` says how results come together."""

    body: str
    program: str
    max_concurrency: int
    join_policy: Literal["all", "all_settled", "first"]
    drop_failed: bool


class SubgraphOptions(NodeOptions, total=False):
    """What `subgraph` takes.

    `input`: templates by the child's variable. `output_variables`: the child's variables by the variable that gets them.
    """

    input: Mapping[str, str]
    output_variables: Mapping[str, str]
    time_limit: Span
    max_iterations: int


class EdgeOptions(TypedDict, total=False):
    """What `edge` takes, beside its condition."""

    id: str
    max_traversals: int
    handoff: bool
