"""What a step program answers with, beside effects: spawned work, questions, signals, handoffs, ends.

    values = await transitions.spawn([program("summarize", text) for text in texts], max_concurrency=4)
    ok = await transitions.ask("Deploy?", {"type": "boolean"}, timeout="1d", default_answer=False)

Rules: all of them are plain frozen values. A program written with `async def` awaits a Pause, a generator yields it, a function
returns it; what ends a program is returned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, overload

from pydantic import BaseModel

from stepgraph.v1 import graph_pb2, interrupt_pb2, policy_pb2, transition_pb2
from stepgraph_client.durations import Span, to_duration
from stepgraph_client.effects import EffectFailed, outcome, value_in
from stepgraph_client.json_text import JsonLike, to_json_text
from stepgraph_client.pauses import Pause
from stepgraph_client.values import read_as, to_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")
T = TypeVar("T")
Results: TypeAlias = "tuple[transition_pb2.EffectResult, ...]"
Join: TypeAlias = Literal["all", "all_settled", "first"]


class _Absent:
    """No default answer: None is one that somebody may want."""


_ABSENT: Final = _Absent()
_JOINS: Final = {
    "all": policy_pb2.JOIN_POLICY_ALL,
    "all_settled": policy_pb2.JOIN_POLICY_ALL_SETTLED,
    "first": policy_pb2.JOIN_POLICY_FIRST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a step program ends; made by `goto` and `done`, and returned."""

    transition: transition_pb2.Transition


class Goto(BaseException):
    """A program goes on at another node; raised by `ctx.goto`. No Exception, so that no `except Exception` takes it for trouble."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(f"goes to {ending.transition.goto.target}")
        self.ending: Final = ending


def goto(target: str, carry: object = None) -> Ending:
    """End the node, and go on at another one over a handoff edge of the graph; `carry` is that node's input."""
    value = None if carry is None else to_value(carry)
    return Ending(
        transition=transition_pb2.Transition(
            goto=transition_pb2.Transition.Goto(target=target, carry=value)
        )
    )


def done(value: object = None) -> Ending:
    """End the node with a value, which is its result."""
    given = None if value is None else to_value(value)
    return Ending(
        transition=transition_pb2.Transition(done=transition_pb2.Transition.Done(value=given))
    )


# ---- spawned work -----------------------------------------------------------------------------------


def node(
    node_id: str, spec_input: object = None, *, label: str | None = None
) -> transition_pb2.NodeSpec:
    """Return work for `spawn`: a node of the graph, with its input."""
    return _spec(graph_pb2.NodeBody(node_id=node_id), spec_input, label)


def program(
    name: str, spec_input: object = None, *, label: str | None = None
) -> transition_pb2.NodeSpec:
    """Return work for `spawn`: another step program, with its input."""
    return _spec(graph_pb2.NodeBody(program=name), spec_input, label)


def _spec(
    body: graph_pb2.NodeBody, spec_input: object, label: str | None
) -> transition_pb2.NodeSpec:
    value = None if spec_input is None else to_value(spec_input)
    return transition_pb2.NodeSpec(body=body, input=value, label=label)


@overload
def spawn(
    specs: Iterable[transition_pb2.NodeSpec],
    *,
    join: Literal["all", "all_settled"] = "all",
    max_concurrency: int = 0,
) -> Pause[list[object]]: ...


@overload
def spawn(
    specs: Iterable[transition_pb2.NodeSpec],
    *,
    join: Literal["first"],
    max_concurrency: int = 0,
) -> Pause[object]: ...


@overload
def spawn(
    specs: Iterable[transition_pb2.NodeSpec],
    *,
    join: Literal["all"] = "all",
    max_concurrency: int = 0,
    returning: type[T],
) -> Pause[list[T]]: ...


@overload
def spawn(
    specs: Iterable[transition_pb2.NodeSpec],
    *,
    join: Literal["all_settled"],
    max_concurrency: int = 0,
    returning: type[T],
) -> Pause[list[T | EffectFailed]]: ...


@overload
def spawn(
    specs: Iterable[transition_pb2.NodeSpec],
    *,
    join: Literal["first"],
    max_concurrency: int = 0,
    returning: type[T],
) -> Pause[T]: ...


def spawn(
    specs: Iterable[transition_pb2.NodeSpec],
    *,
    join: Join = "all",
    max_concurrency: int = 0,
    returning: type[Any] | None = None,
) -> Pause[Any]:
    """Run pieces of work, as many as turn out to be needed: `spawn([program("summarize", each) for each in texts])`.

    Args:
        specs: What to run, made by `node` and `program`. None at all gives [] at once.
        join: "all": the values in order; the first failure fails the node, and the program is not asked any more.
            "all_settled": the same, with an EffectFailed in the place of what failed. "first": the first value; the others
            are cancelled.
        max_concurrency: How many at once; 0 means all.
        returning: What each value is read as: a pydantic model, a dataclass, any type that pydantic can check.

    Raises:
        TypeError: A spec is something else.
    """
    specs = list(specs)
    for spec in specs:
        if not isinstance(spec, transition_pb2.NodeSpec):
            message = f'what is spawned are program("name", input) and node("id", input); found {type(spec).__name__}'
            raise TypeError(message)
    wanted = transition_pb2.Transition.Spawn(
        specs=specs, join=_JOINS[join], max_concurrency=max_concurrency
    )
    read = outcome if returning is None else _reading(returning)
    return Pause(
        transition=transition_pb2.Transition(spawn=wanted),
        read=lambda results: _joined(join, results, read),
    )


def _reading(kind: type[T]) -> Callable[[transition_pb2.EffectResult], T]:
    return lambda result: read_as(value_in(result), kind)


def _joined(
    join: Join, results: Results, read: Callable[[transition_pb2.EffectResult], object]
) -> object:
    match join:
        case "all":
            return [read(each) for each in results]
        case "all_settled":
            return [settled(each, read) for each in results]
        case "first":
            return read(next((each for each in results if not each.HasField("failed")), results[0]))


def settled(
    result: transition_pb2.EffectResult, read: Callable[[transition_pb2.EffectResult], R]
) -> R | EffectFailed:
    """Return what a result has, or the EffectFailed that it would raise."""
    try:
        return read(result)
    except EffectFailed as failed:
        return failed


# ---- waiting for others -----------------------------------------------------------------------------


@overload
def ask(
    prompt: str,
    schema: type[M],
    *,
    timeout: Span | None = None,
    default_answer: object = _ABSENT,
) -> Pause[M]: ...


@overload
def ask(
    prompt: str,
    schema: JsonLike | None = None,
    *,
    timeout: Span | None = None,
    default_answer: object = _ABSENT,
) -> Pause[object]: ...


def ask(
    prompt: str,
    schema: JsonLike | None = None,
    *,
    timeout: Span | None = None,
    default_answer: object = _ABSENT,
) -> Pause[Any]:
    """Ask a person, and wait for as long as it takes.

    An answer "failed" raises EffectFailed with its code.

    Args:
        prompt: The question.
        schema: What answers must be like: JSON Schema, or a pydantic model, which the answer then comes as.
        timeout: How long to wait; without `default_answer` the node then fails with INTERRUPT_DEADLINE.
        default_answer: The answer if nobody gives one in time.
    """
    human = interrupt_pb2.SuspendReason.Human(
        prompt=prompt, json_schema="" if schema is None else to_json_text(schema)
    )
    reason = interrupt_pb2.SuspendReason(human=human)
    if isinstance(schema, type):
        model = schema
        return _suspend(
            reason, timeout, default_answer, lambda each: read_as(value_in(each), model)
        )
    return _suspend(reason, timeout, default_answer, outcome)


def external(
    token: str, *, timeout: Span | None = None, default_answer: object = _ABSENT
) -> Pause[object]:
    """Wait for another system that holds a token, and answers by it; see `Client.answer_external`.

    The token must be the same if the program is replayed: take it from the input, or from a tool's result.
    """
    reason = interrupt_pb2.SuspendReason(external=interrupt_pb2.SuspendReason.External(token=token))
    return _suspend(reason, timeout, default_answer, outcome)


def signal(
    name: str,
    *,
    correlation: str = "",
    count: int = 1,
    timeout: Span | None = None,
    default_answer: object = _ABSENT,
) -> Pause[object]:
    """Wait for a signal to the run, which may have come before. Its payload is the value, or the list of `count` of them."""
    wanted = interrupt_pb2.SuspendReason.Signal(name=name, correlation=correlation, count=count)
    reason = interrupt_pb2.SuspendReason(signal=wanted)
    return _suspend(reason, timeout, default_answer, outcome)


def _suspend(
    reason: interrupt_pb2.SuspendReason,
    timeout: Span | None,
    default_answer: object,
    read: Callable[[transition_pb2.EffectResult], object],
) -> Pause[object]:
    default = None if isinstance(default_answer, _Absent) else to_value(default_answer)
    if default is not None and timeout is None:
        message = "a default_answer is given at the timeout: set `timeout` too"
        raise TypeError(message)
    suspend = transition_pb2.Transition.Suspend(reason=reason, default_answer=default)
    if timeout is not None:
        suspend.timeout.CopyFrom(to_duration(timeout))
    transition = transition_pb2.Transition(suspend=suspend)
    return Pause(transition=transition, read=lambda results: read(results[0]))
