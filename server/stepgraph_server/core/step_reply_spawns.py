"""Whether what a step program wants to spawn can run.

Rules: as in `step_replies`. A reply may have ten thousand specs, so each body is looked at once, and small inputs not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph.v1 import policy_pb2
from stepgraph_server.core.bad_reply import BadReply, refuse_violations
from stepgraph_server.core.names import did_you_mean
from stepgraph_server.core.step_reply_effects import check_fan_out, check_name
from stepgraph_server.core.values import check_value

if TYPE_CHECKING:
    from stepgraph.v1 import graph_pb2, transition_pb2, value_pb2
    from stepgraph_server.core.inputs import RunLimits
    from stepgraph_server.core.state import Activation, RunState

#: What can run as a body here. A body that runs a graph is refused when the graph is registered.
BODY_ACTIONS: Final = frozenset(
    {"llm_infer", "tool_call", "delegate", "human_approval", "subgraph", "sleep", "step"}
)
MAX_DEPTH: Final = 8
"""How deep spawned work may spawn: ids of tasks have at most 512 characters, and nobody follows more."""
MAX_LABEL_CHARACTERS: Final = 128
#: Text below this can't be too large.
_SMALL_CHARACTERS: Final = 16 * 1024


def check_spawn(
    state: RunState,
    activation: Activation,
    spawn: transition_pb2.Transition.Spawn,
    path: str,
    limits: RunLimits,
) -> None:
    """Check a Spawn. Raises BadReply."""
    at = f"{path}.specs"
    if not spawn.specs:
        message = "there is nothing to run; name a spec, or end with Done"
        raise BadReply(path=at, message=message, code="EMPTY_SPAWN")
    check_fan_out(len(spawn.specs), at, limits)
    _check_depth(activation, path)
    if spawn.join not in policy_pb2.JoinPolicy.values():
        message = "is not known to this server; use ALL, ALL_SETTLED or FIRST"
        raise BadReply(path=f"{path}.join", message=message)
    labels: dict[str, int] = {}
    bodies: set[tuple[str, str]] = set()
    for index, spec in enumerate(spawn.specs):
        body = (spec.body.program, spec.body.node_id)
        if body not in bodies:
            _check_body(state, spec.body, f"{at}[{index}].body")
            bodies.add(body)
        _check_input(spec.input, f"{at}[{index}].input")
        label = spec.label if spec.HasField("label") else str(index)
        if len(label) > MAX_LABEL_CHARACTERS:
            message = f"has {len(label)} characters, of at most {MAX_LABEL_CHARACTERS}"
            raise BadReply(path=f"{at}[{index}].label", message=message)
        first = labels.setdefault(label, index)
        if first != index:
            message = f"{label!r} is the label of specs[{first}] too; without a label a spec is called by its position"
            raise BadReply(path=f"{at}[{index}].label", message=message, code="DUPLICATE_LABEL")


def _check_depth(activation: Activation, path: str) -> None:
    depth, above = 0, activation.parent
    while above is not None:
        depth, above = depth + 1, above.parent
    if depth >= MAX_DEPTH:
        message = (
            f"spawned work spawns {MAX_DEPTH} levels deep at most; give the work back with Done"
        )
        raise BadReply(path=path, message=message, code="FAN_OUT_LIMIT")


def _check_body(state: RunState, body: graph_pb2.NodeBody, path: str) -> None:
    match body.WhichOneof("kind"):
        case "program":
            check_name(body.program, f"{path}.program", "a step program")
        case "node_id":
            node = state.graph.nodes.get(body.node_id)
            if node is None:
                hint = did_you_mean(body.node_id, state.graph.nodes)
                message = f"the graph has no node {body.node_id[:64]!r}. {hint}"
                raise BadReply(path=f"{path}.node_id", message=message)
            if node.action_kind not in BODY_ACTIONS:
                listed = ", ".join(sorted(BODY_ACTIONS))
                message = f"the node {node.id!r} does {node.action_kind}, which can't be a body; a body does one of {listed}"
                raise BadReply(path=f"{path}.node_id", message=message)
        case None:
            message = (
                "is unset, or a variant that this server does not know; set node_id or program"
            )
            raise BadReply(path=path, message=message)


def _check_input(value: value_pb2.Value, path: str) -> None:
    kind = value.WhichOneof("kind")
    if kind is None or (kind == "text" and len(value.text) < _SMALL_CHARACTERS):
        return
    refuse_violations(check_value(value, path))


__all__ = ["check_spawn"]
