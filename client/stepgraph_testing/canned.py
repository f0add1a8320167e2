"""Canned results of a dry run: which one is next, and what it means to a task.

Rules: as `dry_run` says. What a function of an executor may return may stand here, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, assert_never

from stepgraph.v1 import conversation_pb2, llm_pb2, task_pb2, transition_pb2
from stepgraph_client import task_results
from stepgraph_client.effects import Effect, await_effects
from stepgraph_client.pauses import Pause
from stepgraph_client.tools import tool_of
from stepgraph_client.transitions import Ending, done
from stepgraph_client.values import from_value
from stepgraph_server.core.canonical import digest
from stepgraph_server.core.inputs import ToolOffer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from stepgraph.v1 import run_pb2


class NoResult(LookupError):
    """There is no result for something, or none any more."""


class Canned:
    """The results that a dry run was given."""

    def __init__(self, results: Mapping[str, object]) -> None:
        self._results: Final = results
        self._given: Final[dict[str, int]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._results

    def next(self, label: str, node_id: str, asked: object) -> object:
        """Return the next result of a task. Raises NoResult."""
        key = next((each for each in (label, node_id) if each in self._results), None)
        if key is None:
            message = (
                f"{label} of node {node_id} has no result; give one for {label!r} or {node_id!r}"
            )
            raise NoResult(message)
        said = self._results[key]
        if isinstance(said, list | tuple):
            index = self._given.get(key, 0)
            self._given[key] = index + 1
            if index >= len(said):
                message = f"results[{key!r}] has {len(said)} items, and is asked for another one"
                raise NoResult(message)
            return said[index]
        return said(asked) if callable(said) else said


def asked_of(given: task_pb2.TaskInput) -> object:
    """Return what a function is called with: the input of a task, as executors' functions have it."""
    kind = given.WhichOneof("kind")
    match kind:
        case "tool":
            return json.loads(given.tool.args or "{}")
        case "agent":
            return given.agent.task
        case "effect":
            return from_value(given.effect.payload)
        case None:
            return None
        case _:
            return getattr(given, kind)


def child_input(given: run_pb2.RunInput) -> object:
    """Return what a function is called with for a child run: its input, or its variables by name."""
    if given.HasField("value"):
        return from_value(given.value)
    return {name: from_value(value) for name, value in given.variables.items()}


def result_of(given: task_pb2.TaskInput, said: object) -> task_pb2.TaskResult:
    """Return what is meant by something as a result of a task. Raises Failed RESULT_INVALID."""
    kind = given.WhichOneof("kind")
    match kind:
        case "llm":
            return task_results.llm_result(said)
        case "tool":
            return task_results.tool_result(said)
        case "agent":
            return task_results.agent_result(said)
        case "condition":
            return task_results.condition_result(said)
        case "effect":
            return task_results.effect_result(said)
        case "step":
            return task_pb2.TaskResult(step=_reply(said))
        case None:
            raise AssertionError(given)
        case _:
            assert_never(kind)


def _reply(said: object) -> transition_pb2.StepReply:
    match said:
        case transition_pb2.StepReply():
            return said
        case transition_pb2.Transition():
            return transition_pb2.StepReply(transition=said)
        case Pause() | Ending():
            return transition_pb2.StepReply(transition=said.transition)
        case Effect():
            return transition_pb2.StepReply(transition=await_effects(said).transition)
        case _:
            return transition_pb2.StepReply(transition=done(said).transition)


def offers(
    results: Mapping[str, object],
    tools: Iterable[llm_pb2.ToolDefinition | Callable[..., object]],
) -> tuple[ToolOffer, ...]:
    """Return the tools that models are offered: those that are given, and those that results name."""
    found = {
        each.name: each
        for each in (
            tool if isinstance(tool, llm_pb2.ToolDefinition) else tool_of(tool).definition
            for tool in tools
        )
    }
    for name in _named(results):
        found.setdefault(name, llm_pb2.ToolDefinition(name=name))
    return tuple(
        ToolOffer(definition=found[name], digest=digest(found[name])) for name in sorted(found)
    )


def _named(results: Mapping[str, object]) -> Iterator[str]:
    for key, said in results.items():
        if key.startswith("tool "):
            yield key.removeprefix("tool ")
        for each in said if isinstance(said, list | tuple) else (said,):
            if isinstance(each, conversation_pb2.Message):
                yield from (
                    block.tool_call.name for block in each.content if block.HasField("tool_call")
                )
