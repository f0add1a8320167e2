"""Whether the graphs that a step program wants to run can be.

Rules: as in `step_replies`. Whether a reference leads to a graph is only known where graphs are kept; that its effect then says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core import canonical
from stepgraph_server.core.bad_reply import BadReply, refuse_violations
from stepgraph_server.core.graph import check_graph
from stepgraph_server.core.policies import GraphDefaults
from stepgraph_server.core.validation.actions import is_reference
from stepgraph_server.core.values import check_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph.v1 import graph_pb2, transition_pb2

MAX_DEFINITION_BYTES: Final = 256 * 1024
"""Of all definitions in one reply: each is checked while every other run waits. Larger graphs are registered, and named."""
#: What of a task's policies has no meaning for a child run, whose nodes have their own.
_NO_LIMITS: Final = ("queue", "accept", "idle")


def check_graphs(effects: Iterable[transition_pb2.Effect], path: str) -> None:
    """Check those of a reply's effects that are graphs. Raises BadReply."""
    size, seen = 0, set[str]()
    for index, effect in enumerate(effects):
        if not effect.HasField("graph"):
            continue
        at = f"{path}[{index}]"
        graph = effect.graph
        if graph.input.WhichOneof("kind") is not None:
            refuse_violations(check_value(graph.input, f"{at}.graph.input"))
        _check_options(effect.options, f"{at}.options")
        if graph.graph_ref.HasField("definition"):
            size += graph.graph_ref.definition.ByteSize()
            if size > MAX_DEFINITION_BYTES:
                message = (
                    f"the definitions of one reply have more than {MAX_DEFINITION_BYTES} bytes; "
                    "register the graph, and refer to it by its name"
                )
                where = f"{at}.graph.graph_ref.definition"
                raise BadReply(path=where, message=message, code="PAYLOAD_TOO_LARGE")
        _check_ref(graph.graph_ref, f"{at}.graph.graph_ref", seen)


def _check_ref(ref: graph_pb2.GraphRef, path: str, seen: set[str]) -> None:
    match ref.WhichOneof("kind"):
        case "reference":
            if not is_reference(ref.reference):
                message = (
                    f"{ref.reference[:80]!r} does not refer to a graph; write name, name@3, or sha256: and 64 "
                    "hexadecimal digits"
                )
                raise BadReply(path=f"{path}.reference", message=message)
        case "definition":
            _check_definition(ref.definition, f"{path}.definition", seen)
        case "same_version":
            pass
        case None:
            message = "is unset, or a variant that this server does not know; set reference, definition or same_version"
            raise BadReply(path=path, message=message)


def _check_definition(definition: graph_pb2.StateGraph, path: str, seen: set[str]) -> None:
    known = definition.SerializeToString(deterministic=True)
    digest = canonical.digest_text(known.hex())
    if digest in seen:
        return
    seen.add(digest)
    problems = check_graph(definition, GraphDefaults()).problems
    if problems:
        first = problems[0]
        hint = f". {first.hint}" if first.hint else ""
        more = f" ({len(problems)} problems in all)" if len(problems) > 1 else ""
        where = f"{path}.{first.path}" if first.path else path
        raise BadReply(path=where, message=f"{first.message}{hint}{more}", code="GRAPH_INVALID")


def _check_options(options: transition_pb2.EffectOptions, path: str) -> None:
    if options.HasField("retry"):
        message = "a child run is not tried again, its nodes are; leave it out"
        raise BadReply(path=f"{path}.retry", message=message)
    for name in _NO_LIMITS:
        if options.limits.HasField(name):
            message = "a child run waits for no executor; limit it with run or total"
            raise BadReply(path=f"{path}.limits.{name}", message=message)


__all__ = ["check_graphs"]
