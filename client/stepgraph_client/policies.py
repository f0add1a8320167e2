"""How tasks are tried and limited, which tools pass, and how questions look: the parts that nodes share.

Rules: these functions only build messages of the schema, from keywords that have the schema's names. What is not
given stays absent, and absent means the default of the level above.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict, Unpack

from stepgraph.v1.interrupt_pb2 import InterruptAnswer, InterruptOption, InterruptOptions
from stepgraph.v1.llm_pb2 import ToolChoice, ToolFilter
from stepgraph.v1.policy_pb2 import RetryPolicy, TaskLimits
from stepgraph_client.durations import Span, to_duration
from stepgraph_client.json_text import JsonLike, to_json_text
from stepgraph_client.keywords import checked

if TYPE_CHECKING:
    from collections.abc import Sequence


class RetryOptions(TypedDict, total=False):
    """How often a task is tried; see `stepgraph.v1.RetryPolicy`."""

    max_tries: int
    first_delay: Span
    factor: float
    max_delay: Span
    jitter: float
    retryable_codes: Sequence[str]
    non_retryable_codes: Sequence[str]


class LimitOptions(TypedDict, total=False):
    """How long each part of a task's life may take; see `stepgraph.v1.TaskLimits`. "0s" means no limit."""

    queue: Span
    accept: Span
    run: Span
    idle: Span
    total: Span


class QuestionOptions(TypedDict, total=False):
    """How a node's question looks; see `stepgraph.v1.InterruptOptions`.

    `options` are ids, or ids with the labels that people read. `answer_schema` is JSON Schema.
    """

    options: Sequence[str] | Mapping[str, str]
    answer_schema: JsonLike
    deadline: Span
    default_answer: InterruptAnswer


@checked
def retry(**options: Unpack[RetryOptions]) -> RetryPolicy:
    """Return a policy of tries: `retry(max_tries=5, first_delay="2s")`."""
    policy = RetryPolicy(
        max_tries=options.get("max_tries"),
        factor=options.get("factor"),
        jitter=options.get("jitter"),
        retryable_codes=options.get("retryable_codes", ()),
        non_retryable_codes=options.get("non_retryable_codes", ()),
    )
    if "first_delay" in options:
        policy.first_delay.CopyFrom(to_duration(options["first_delay"]))
    if "max_delay" in options:
        policy.max_delay.CopyFrom(to_duration(options["max_delay"]))
    return policy


@checked
def limits(**options: Unpack[LimitOptions]) -> TaskLimits:
    """Return limits of a task: `limits(run="5m", idle="30s")`."""
    built = TaskLimits()
    if "queue" in options:
        built.queue.CopyFrom(to_duration(options["queue"]))
    if "accept" in options:
        built.accept.CopyFrom(to_duration(options["accept"]))
    if "run" in options:
        built.run.CopyFrom(to_duration(options["run"]))
    if "idle" in options:
        built.idle.CopyFrom(to_duration(options["idle"]))
    if "total" in options:
        built.total.CopyFrom(to_duration(options["total"]))
    return built


@checked
def question(description: str = "", **options: Unpack[QuestionOptions]) -> InterruptOptions:
    """Return how a node's question looks, for `interrupt=question(…)`."""
    built = InterruptOptions(
        description=description,
        options=choices(options.get("options", ())),
        answer_schema=to_json_text(options["answer_schema"]) if "answer_schema" in options else "",
        default_answer=options.get("default_answer"),
    )
    if "deadline" in options:
        built.deadline.CopyFrom(to_duration(options["deadline"]))
    return built


def choices(options: Sequence[str] | Mapping[str, str]) -> list[InterruptOption]:
    """Return what may be chosen, from ids or from ids with labels."""
    labels = options if isinstance(options, Mapping) else dict.fromkeys(options, "")
    return [InterruptOption(id=each, label=label) for each, label in labels.items()]


@checked
def only(*names: str, deny: Sequence[str] = ()) -> ToolFilter:
    """Let through these tools but not the denied ones. Names, or prefixes that end in `*`. No name: none passes."""
    return ToolFilter(allow=names, deny=deny)


@checked
def everything_but(*names: str) -> ToolFilter:
    """Let through all tools but these. Names, or prefixes that end in `*`."""
    return ToolFilter(allow=["*"], deny=names)


@checked
def must_call(tool: str | None = None) -> ToolChoice:
    """The model must call a tool; this one, if it is named."""
    if tool is None:
        return ToolChoice(required=ToolChoice.Required())
    return ToolChoice(named=ToolChoice.Named(name=tool))


def must_not_call() -> ToolChoice:
    """The model sees its tools and must not call any."""
    return ToolChoice(forbidden=ToolChoice.Forbidden())
