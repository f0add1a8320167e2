"""Which verb does what an RPC does.

Rules: each RPC of stepgraph.v1 has a line, and a test walks the descriptors, so one that is added without a verb is noticed. What executors
say to the server is no verb, because no person says it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The words behind `stepgraph`, by RPC. They name a command, and an option where it takes one.
VERBS: Mapping[str, str] = {
    "GraphService/RegisterGraph": "graphs register",
    "GraphService/ValidateGraph": "graphs validate",
    "GraphService/GetGraph": "graphs get",
    "GraphService/ListGraphs": "graphs list",
    "GraphService/ListGraphVersions": "graphs versions",
    "GraphService/RenderGraph": "graphs show --mermaid",
    "RunService/StartRun": "run --detach",
    "RunService/StartAndWatchRun": "run",
    "RunService/GetRun": "runs get",
    "RunService/ListRuns": "runs list",
    "RunService/WatchRun": "runs watch",
    "RunService/WatchRuns": "runs watch --all",
    "RunService/GetRunState": "runs state",
    "RunService/CancelRun": "runs cancel",
    "RunService/PauseRun": "runs pause",
    "RunService/UnpauseRun": "runs unpause",
    "RunService/SignalRun": "runs signal",
    "RunService/ForkRun": "runs fork",
    "RunService/RetryRun": "runs retry",
    "RunService/ExplainRun": "runs explain",
    "RunService/DeleteRun": "runs delete",
    "InterruptService/AnswerInterrupt": "answer",
    "InterruptService/GetInterrupt": "interrupts get",
    "InterruptService/ListInterrupts": "interrupts list",
    "ExecutorService/ListExecutors": "executors list",
    "ValueService/ReadValue": "values get",
    "ValueService/WriteValue": "values put",
}

#: RPCs that only executors call.
EXECUTORS_OWN = frozenset({"ExecutorService/Connect", "ExecutorService/ReadTaskInput"})
