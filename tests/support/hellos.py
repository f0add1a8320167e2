"""What executors say first, for tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import llm_pb2
from stepgraph_server.executors.frames import check_hello

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph_server.executors.session_events import HelloReceived

TOKEN = b"0123456789abcdef"


def tool(
    name: str = "search", *, description: str = "Searches.", schema: str | None = None
) -> pb.Capability:
    """Return the capability of a tool with one parameter."""
    input_schema = (
        json.dumps({"type": "object", "properties": {"query": {"type": "string"}}})
        if schema is None
        else schema
    )
    definition = llm_pb2.ToolDefinition(
        name=name, description=description, input_schema=input_schema
    )
    return pb.Capability(tool=pb.Capability.Tool(definition=definition))


def llm(*models: str) -> pb.Capability:
    """Return the capability of models."""
    return pb.Capability(llm=pb.Capability.Llm(models=models))


def agent(kind: str) -> pb.Capability:
    """Return the capability of an agent."""
    return pb.Capability(agent=pb.Capability.Agent(kind=kind))


def ref(task_id: str, attempt: int = 1) -> pb.AttemptRef:
    """Return a reference to an attempt."""
    return pb.AttemptRef(task_id=task_id, attempt=attempt)


def hello(
    executor_id: str = "worker-1",
    *,
    token: bytes = TOKEN,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    capabilities: Sequence[pb.Capability] = (),
    max_in_flight: int = 4,
) -> pb.Hello:
    """Return a hello that a server takes."""
    return pb.Hello(
        protocol_version=1,
        executor_id=executor_id,
        instance_token=token,
        namespace=namespace,
        labels=labels or {},
        capabilities=capabilities or [llm("gpt-*")],
        max_in_flight=max_in_flight,
        client_name="tests/1",
    )


def received(message: pb.Hello) -> HelloReceived:
    """Return a hello as the session hands it on."""
    return check_hello(message, version=1, max_labels=64)
