"""What executors report and people answer, from the words of a scenario."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from stepgraph.v1 import (
    conversation_pb2,
    executor_service_pb2,
    failure_pb2,
    interrupt_pb2,
    llm_pb2,
    run_pb2,
    task_pb2,
    value_pb2,
)
from stepgraph_server.core.failures import failure
from stepgraph_server.core.inputs import ChildEnd, ChildSeen
from stepgraph_server.core.instants import Span, to_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SPAN = re.compile(r"([0-9.]+)(ms|s|m|h)")
_UNITS = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}


def span(text: str) -> Span:
    """Return a length of time such as `250ms` or `1h30m`."""
    found = _SPAN.findall(text)
    assert found, f"{text!r} is no length of time"
    return Span(round(sum(float(number) * _UNITS[unit] for number, unit in found)))


def value(text: str) -> value_pb2.Value:
    """Return what is JSON as JSON, and anything else as text; `blob` is a blob."""
    if text == "blob":
        return value_pb2.Value(blob=value_pb2.Blob(media_type="image/png", data=b"png"))
    try:
        json.loads(text)
    except ValueError:
        return value_pb2.Value(text=text)
    return value_pb2.Value(json=text)


def split(words: Iterable[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return plain words, and `name=value` words in order."""
    plain: list[str] = []
    named: list[tuple[str, str]] = []
    for word in words:
        name, equals, rest = word.partition("=")
        if equals and re.fullmatch(r"[a-z_]+", name):
            named.append((name, rest))
        else:
            plain.append(word)
    return plain, named


def result(kind: str, words: Iterable[str]) -> task_pb2.TaskResult:
    """Return the result of a task of this kind.

    llm: `text=…`, `call='search {"q":1}'` (an `id:` in front is the provider's), `stop=max_tokens`, `tokens=100`.
    tool and agent: the output, `error`, `tokens=100`. condition: `true` or `false`.
    """
    plain, named = split(words)
    given = dict(named)
    usage = llm_pb2.Usage(input_tokens=int(given.get("tokens", "0")))
    match given.get("kind", kind):
        case "llm":
            return task_pb2.TaskResult(llm=_reply(named, usage))
        case "tool":
            made = task_pb2.TaskResult()
            made.tool.is_error = "error" in plain
            plain = [word for word in plain if word != "error"]
            made.tool.output.CopyFrom(value(" ".join(plain)))
            return made
        case "agent":
            made = task_pb2.TaskResult()
            made.agent.output.CopyFrom(value(" ".join(plain)))
            made.agent.usage.CopyFrom(usage)
            return made
        case "condition":
            return task_pb2.TaskResult(
                condition=task_pb2.TaskResult.Condition(holds=plain == ["true"])
            )
        case "effect":
            made = task_pb2.TaskResult()
            made.effect.output.CopyFrom(value(" ".join(plain)))
            return made
        case "graph":
            made = task_pb2.TaskResult()
            made.graph.output.CopyFrom(value(" ".join(plain)))
            for name, text in named:
                made.graph.variables[name].CopyFrom(value(text))
            return made
        case other:
            made = task_pb2.TaskResult()
            made.effect.output.text = other
            return made


def _reply(named: Iterable[tuple[str, str]], usage: llm_pb2.Usage) -> llm_pb2.LlmResponse:
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT)
    stop = "end"
    for name, text in named:
        if name == "text":
            message.content.add().text.text = text
        elif name == "call":
            head, _, args = text.partition(" ")
            call_id, colon, tool = head.rpartition(":")
            call = message.content.add().tool_call
            call.name, call.args, call.id = tool, args, call_id if colon else ""
        elif name == "stop":
            stop = text
    number = llm_pb2.LlmStopReason.Value(f"LLM_STOP_REASON_{stop.upper()}")
    return llm_pb2.LlmResponse(message=message, stop_reason=number, usage=usage)


def failed(words: Iterable[str]) -> executor_service_pb2.AttemptOutcome.Failed:
    """Return a failure: the code, then its message; `retryable=`, `category=`, `after=`, `tokens=`."""
    plain, named = split(words)
    given = dict(named)
    category = given.get("category", "technical").upper()
    failure = failure_pb2.Failure(
        code=plain[0],
        message=" ".join(plain[1:]),
        category=failure_pb2.FailureCategory.Value(f"FAILURE_CATEGORY_{category}"),
    )
    if "retryable" in given:
        failure.retryable = given["retryable"] == "true"
    made = executor_service_pb2.AttemptOutcome.Failed(failure=failure)
    if "after" in given:
        made.retry_after.CopyFrom(to_duration(span(given["after"])))
    if "tokens" in given:
        made.usage.input_tokens = int(given["tokens"])
    return made


def cancelled(words: Iterable[str]) -> executor_service_pb2.AttemptOutcome.Cancelled:
    """Return a cancelled attempt, with `partial=` text and `tokens=`."""
    given = dict(split(words)[1])
    made = executor_service_pb2.AttemptOutcome.Cancelled()
    if "partial" in given:
        made.partial.tool.output.text = given["partial"]
    if "tokens" in given:
        made.usage.input_tokens = int(given["tokens"])
    return made


def answer(kind: str, words: list[str]) -> interrupt_pb2.InterruptAnswer:
    """Return an answer: a kind and its text; of proceed_with `variables=` (JSON), `args=` and `message=`."""
    plain, named = split(words)
    text = " ".join(plain)
    made = interrupt_pb2.InterruptAnswer()
    match kind:
        case "proceed":
            made.proceed.SetInParent()
        case "proceed_with":
            _proceed_with(made.proceed_with, dict(named))
        case "revise":
            made.revise.feedback = text
        case "choose":
            made.choose.option_id = text
        case "abort":
            made.abort.reason = text
        case "reply":
            made.reply.value.CopyFrom(value(text))
        case "failed":
            made.failed.failure.code, made.failed.failure.message = plain[0], " ".join(plain[1:])
        case _:
            pass
    return made


def _proceed_with(
    made: interrupt_pb2.InterruptAnswer.ProceedWith, given: Mapping[str, str]
) -> None:
    made.SetInParent()
    for name, tree in json.loads(given.get("variables", "{}")).items():
        made.variables[name].CopyFrom(
            value_pb2.Value(text=tree)
            if isinstance(tree, str)
            else value_pb2.Value(json=json.dumps(tree))
        )
    if "args" in given:
        made.tool_args = given["args"]
    made.message = given.get("message", "")


def child_seen(words: Iterable[str], body: Iterable[str]) -> ChildSeen:
    """Return how a child run is, from the words of a scenario and the variables below them."""
    (task_id, status, *rest), named = split(words)
    usage = llm_pb2.Usage(input_tokens=int(dict(named).get("tokens", "0")))
    variables = {}
    for line in body:
        name, _, text = line.partition(" = ")
        variables[name.strip()] = value(text.strip())
    output = why = None
    match status:
        case "completed" if rest:
            output = value(" ".join(rest))
        case "failed":
            why = failure_pb2.Failure(code=rest[0], message=" ".join(rest[1:]))
        case "cancelled":
            why = failure("CANCELLED", " ".join(rest))
        case _:
            pass
    is_over = status in ("completed", "failed", "cancelled")
    return ChildSeen(
        task_id=task_id,
        run_id="c1",
        graph=run_pb2.GraphVersion(name="child", version=1),
        status=run_pb2.RunStatus.Value(f"RUN_STATUS_{status.upper()}"),
        end=ChildEnd(output=output, variables=variables, failure=why, usage=usage)
        if is_over
        else None,
        paused_by_parent="by-parent" in rest,
    )


__all__ = ["answer", "cancelled", "failed", "result", "span", "split", "value"]
