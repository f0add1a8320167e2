"""The state of a run after one of its events, as callers read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import run_service_pb2, state_pb2
from stepgraph_server.core.state import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepgraph.v1 import conversation_pb2, value_pb2
    from stepgraph_server.core.state import Activation, Carried, RunState


class FoldedState:
    """A folded state that nobody changes any more."""

    __slots__ = ("_messages", "_state")

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._messages = state.conversation.messages()

    @property
    def sequence(self) -> int:
        """The event that it is the state after."""
        return self._state.sequence

    @property
    def messages(self) -> Sequence[conversation_pb2.Message]:
        """The messages of the conversation, in order."""
        return self._messages

    @property
    def variables(self) -> Mapping[str, value_pb2.Value]:
        """The variables."""
        return self._state.variables

    def rest(self) -> state_pb2.GraphState:
        """Return a new message with all of the state but its messages and variables."""
        state = self._state
        message = _carried(state.carried)
        message.conversation.id = state.conversation.id or state.run_id
        message.conversation.metadata.update(state.conversation.metadata)
        message.metadata.update(state.metadata)
        message.should_terminate = state.terminate
        message.iteration_count = state.iterations
        message.interrupt_points.extend(state.interrupt_points)
        remaining = state.budget_remaining
        if remaining is not None:
            message.token_budget_remaining = remaining
        return message

    def activations(self) -> Sequence[run_service_pb2.ActivationState]:
        """Return the live activations: the nodes of the superstep, then what they have spawned, without what those carry."""
        state = self._state
        live = [_activation(each) for each in state.activations.values()]
        # Thousands may be spawned at once, and all of them carry what the node that spawned them carries.
        live += [_bare(each) for each in state.spawned.values()]
        return live

    def result(self) -> state_pb2.GraphExecutionResult | None:
        """Return how the run ended, without final_state; None if it had not."""
        return self._state.result


def _activation(activation: Activation) -> run_service_pb2.ActivationState:
    return run_service_pb2.ActivationState(
        activation_id=activation.id,
        node_id=activation.node.id,
        carried=_carried(activation.carried),
        ended=activation.phase is Phase.ENDED,
    )


def _bare(activation: Activation) -> run_service_pb2.ActivationState:
    return run_service_pb2.ActivationState(
        activation_id=activation.id,
        node_id=activation.node.id,
        ended=activation.phase is Phase.ENDED,
    )


def _carried(carried: Carried) -> state_pb2.GraphState:
    message = state_pb2.GraphState(active_paradigm=carried.paradigm)
    if carried.last_result is not None:
        message.last_result.CopyFrom(carried.last_result)
    if carried.last_error is not None:
        message.last_error.CopyFrom(carried.last_error)
    if carried.decision is not None:
        message.parsed_decision.CopyFrom(carried.decision)
    return message
