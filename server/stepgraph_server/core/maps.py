"""Map: a body for each item of a list, on the same machinery that step programs spawn with.

Rules: the server answers for the node as a step program would, once, and that is recorded: what the expression gave is never
evaluated again. Results stand in item order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import event_pb2, failure_pb2, graph_pb2, task_pb2, transition_pb2, value_pb2
from stepgraph_server.core.actions.messages import list_value, output_message
from stepgraph_server.core.actions.step import Done, Fail
from stepgraph_server.core.expressions import ExpressionError
from stepgraph_server.core.failures import failure
from stepgraph_server.core.json_text import JsonTextError
from stepgraph_server.core.spawn import ALL_SETTLED, FIRST
from stepgraph_server.core.values import ValueNotReadable, from_json
from stepgraph_server.core.view import View, failure_json

if TYPE_CHECKING:
    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.state import Activation
    from stepgraph_server.core.turn import Turn


def begin(turn: Turn, activation: Activation) -> Fail | None:
    """Evaluate the items, and record what is spawned for them; return why that can't be."""
    items = _items(turn, activation)
    if isinstance(items, Fail):
        return items
    limits = turn.world.limits
    if len(items) > limits.max_fan_out:
        text = f"items has {len(items)} entries, of at most {limits.max_fan_out}; split the list"
        return _fail(activation, "FAN_OUT_LIMIT", text)
    action = _action(activation)
    reply = transition_pb2.StepReply()
    spawn = reply.transition.spawn
    spawn.SetInParent()
    spawn.join = action.join
    spawn.max_concurrency = action.max_concurrency
    for item in items:
        spawn.specs.add(body=action.body, input=from_json(item))
    size = reply.ByteSize()
    if size > limits.max_bytes_per_decision:
        text = (
            f"items has {size} bytes with what runs for each, of at most {limits.max_bytes_per_decision}; let items be keys, "
            "and the body look up the rest"
        )
        return _fail(activation, "PAYLOAD_TOO_LARGE", text)
    fact = event_pb2.TaskCompleted(
        task_id=f"{activation.id}/t0/poll", result=task_pb2.TaskResult(step=reply)
    )
    turn.emit("task_completed", fact)
    return None


def _items(turn: Turn, activation: Activation) -> list[JsonValue] | Fail:
    view = View(turn.state, activation.carried, activation.delta, turn.work)
    try:
        items = view.evaluate(activation.node.expressions["items"])
    except (ExpressionError, ValueNotReadable, JsonTextError) as error:
        return _fail(activation, "EXPRESSION_FAILED", f"items: {error}")
    if isinstance(items, list):
        return items
    given = {dict: "an object", str: "a string", bool: "a boolean", type(None): "null"}
    kind = given.get(type(items), "a number")
    return _fail(activation, "EXPRESSION_FAILED", f"items must give a list, and gave {kind}")


def _fail(activation: Activation, code: str, text: str) -> Fail:
    node_id = activation.node.id
    return Fail(failure=failure(code, f"{node_id}: {text}", source=node_id))


def _action(activation: Activation) -> graph_pb2.NodeAction.Map:
    action = activation.node.action
    assert isinstance(action, graph_pb2.NodeAction.Map)
    return action


def too_large(turn: Turn, activation: Activation) -> Fail | None:
    """Return why the results together can't be the value of the node, or None if they can."""
    spawn = activation.spawn
    assert spawn is not None
    size = sum(each.ByteSize() for each in spawn.outcomes if each is not None)
    limit = turn.world.limits.max_inline_value_bytes
    if size <= limit:
        return None
    text = (
        f"the {len(spawn.outcomes)} results have {size} bytes together, of at most {limit}; let the body store what is large "
        "and give a reference"
    )
    return _fail(activation, "PAYLOAD_TOO_LARGE", text)


def ending(activation: Activation) -> Done:
    """Return how the node ends: with the results of its items, in their order."""
    spawn = activation.spawn
    assert spawn is not None
    shown: list[value_pb2.Value] = []
    for outcome in spawn.outcomes:
        if isinstance(outcome, failure_pb2.Failure):
            if spawn.wanted.join == ALL_SETTLED and not _action(activation).drop_failed:
                shown.append(from_json({"failure": failure_json(outcome)}))
            continue
        assert outcome is not None
        shown.append(outcome)
    assert spawn.wanted.join != FIRST or len(shown) <= 1
    value = list_value(shown)
    return Done(value=value, messages=(output_message(value, activation.node.id),))


__all__ = ["begin", "ending", "too_large"]
