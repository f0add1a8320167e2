"""Clients and executors for stepgraph.

`Client` starts, watches and steers runs; `Graph` builds graphs; `Executor` does the work of runs in your own process.
Programs without asyncio find the same client in `stepgraph_client.sync`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from stepgraph_client.answers import (
    abort,
    choose,
    failed,
    proceed,
    proceed_with,
    reply,
    revise,
)
from stepgraph_client.calls import Patience
from stepgraph_client.changes import another_answer, another_result, another_state
from stepgraph_client.client import Client
from stepgraph_client.conditions import (
    always,
    custom,
    error_occurred,
    expression,
    has_tool_calls,
    is_final_answer,
    iteration_exceeds,
    otherwise,
    paradigm_equals,
    requests_delegation,
    state_equals,
)
from stepgraph_client.errors import (
    AlreadyExists,
    GraphInvalid,
    InvalidRequest,
    NotFound,
    NotPermitted,
    NotSupported,
    Refused,
    RunCancelled,
    RunFailed,
    RunNotCompleted,
    ServerFault,
    StepgraphError,
    TooMuch,
    Unreachable,
    Violation,
    WrongState,
)
from stepgraph_client.files import GraphFile, GraphFileError, load_graph, parse_graph
from stepgraph_client.graphs import Graph, context
from stepgraph_client.keywords import GraphBuildError
from stepgraph_client.policies import (
    everything_but,
    limits,
    must_call,
    must_not_call,
    only,
    question,
    retry,
)
from stepgraph_client.run_calls import RunHandle, RunState
from stepgraph_client.values import from_value, read_as, to_value
from stepgraph_client.watching import Event, RunNews

if TYPE_CHECKING:
    from stepgraph_client.effects import EffectFailed
    from stepgraph_client.executor import Executor
    from stepgraph_client.step_context import StepContext
    from stepgraph_client.task_context import ConditionContext, TaskContext
    from stepgraph_client.task_errors import BadArguments, Failed, ToolError
    from stepgraph_client.transitions import done, goto, node, program

__all__ = [
    "AlreadyExists",
    "BadArguments",
    "Client",
    "ConditionContext",
    "EffectFailed",
    "Event",
    "Executor",
    "Failed",
    "Graph",
    "GraphBuildError",
    "GraphFile",
    "GraphFileError",
    "GraphInvalid",
    "InvalidRequest",
    "NotFound",
    "NotPermitted",
    "NotSupported",
    "Patience",
    "Refused",
    "RunCancelled",
    "RunFailed",
    "RunHandle",
    "RunNews",
    "RunNotCompleted",
    "RunState",
    "ServerFault",
    "StepContext",
    "StepgraphError",
    "TaskContext",
    "TooMuch",
    "ToolError",
    "Unreachable",
    "Violation",
    "WrongState",
    "abort",
    "always",
    "another_answer",
    "another_result",
    "another_state",
    "choose",
    "context",
    "custom",
    "done",
    "error_occurred",
    "everything_but",
    "expression",
    "failed",
    "from_value",
    "goto",
    "has_tool_calls",
    "is_final_answer",
    "iteration_exceeds",
    "limits",
    "load_graph",
    "must_call",
    "must_not_call",
    "node",
    "only",
    "otherwise",
    "paradigm_equals",
    "parse_graph",
    "proceed",
    "proceed_with",
    "program",
    "question",
    "read_as",
    "reply",
    "requests_delegation",
    "retry",
    "revise",
    "state_equals",
    "to_value",
]

# Imported when they are first asked for: a program that only starts runs does no work of them.
_LATER = {
    "BadArguments": "stepgraph_client.task_errors",
    "ConditionContext": "stepgraph_client.task_context",
    "EffectFailed": "stepgraph_client.effects",
    "Executor": "stepgraph_client.executor",
    "Failed": "stepgraph_client.task_errors",
    "StepContext": "stepgraph_client.step_context",
    "TaskContext": "stepgraph_client.task_context",
    "ToolError": "stepgraph_client.task_errors",
    "done": "stepgraph_client.transitions",
    "goto": "stepgraph_client.transitions",
    "node": "stepgraph_client.transitions",
    "program": "stepgraph_client.transitions",
}


def __getattr__(name: str) -> object:
    """Return what an executor needs."""
    if name not in _LATER:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(_LATER[name]), name)
    return found
