"""Delegate: hands a task to an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2, graph_pb2
from stepgraph_server.core.actions.calls import provider_id_of
from stepgraph_server.core.actions.inputs import agent_input
from stepgraph_server.core.actions.messages import output_message, result_message, value_blocks
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES, Await, Done, Effect, Fail
from stepgraph_server.core.failures import failure
from stepgraph_server.core.templates import Template

if TYPE_CHECKING:
    from stepgraph_server.core.actions.step import Poll, Step


def poll(poll: Poll) -> Step:
    """Ask for the agent, then end with what it gave."""
    if poll.turn == 0:
        return _ask(poll)
    result = poll.results[0]
    if isinstance(result, failure_pb2.Failure):
        return Fail(failure=result)
    node = poll.activation.node
    value = result.agent.output
    action = node.action
    assert isinstance(action, graph_pb2.NodeAction.Delegate)
    if action.HasField("task_template"):
        return Done(value=value, messages=(output_message(value, node.id),))
    call_id = poll.activation.call_ids[0]
    if not call_id:
        return Done(value=value, messages=(output_message(value, node.id),), decides=True)
    message = result_message(call_id, provider_id_of(poll, call_id), value_blocks(value))
    return Done(value=value, messages=(message,), decides=True)


def _ask(poll: Poll) -> Step:
    node = poll.activation.node
    action = node.action
    assert isinstance(action, graph_pb2.NodeAction.Delegate)
    kind, task, call_id = action.agent_kind, "", ""
    if kind:
        kind = Template.compile(kind).render(poll.view, max_bytes=MAX_RENDERED_BYTES)
    if action.HasField("task_template"):
        task = Template.compile(action.task_template).render(
            poll.view, max_bytes=MAX_RENDERED_BYTES
        )
    else:
        decision = poll.view.carried.decision
        if decision is None or not decision.HasField("delegate"):
            message = (
                f"{node.id!r} carries out the decision to delegate, but none was carried to it"
            )
            return Fail(failure=failure("NO_DECISION", message, source=node.id))
        wanted = decision.delegate
        kind, task, call_id = kind or wanted.agent_kind, wanted.task, wanted.call_id
    effect = Effect(
        key=("agent", kind),
        label=f"agent {kind}",
        prepared=agent_input(kind, task),
        call_id=call_id,
    )
    return Await(effects=(effect,))
