"""What a step program gets when it is polled: a StepContext, put together from bytes.

Rules: what was told before is sent from the bytes that were made then. A process that holds the turns so far gets none of
them again; any other gets all, so every poll can be understood by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import graph_pb2, transition_pb2, value_pb2
from stepgraph_server.core import wire
from stepgraph_server.core.actions.step import MAX_RENDERED_BYTES
from stepgraph_server.core.state import Delta
from stepgraph_server.core.templates import ArgsTemplate
from stepgraph_server.core.values import from_json
from stepgraph_server.core.view import View, with_messages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.core.state import Activation, RunState, Task

#: TaskInput.step
_STEP_FIELD: Final = 5
#: Fields of StepContext and of StepTurn.
_RESULTS_FIELD: Final = 5
_HISTORY_FIELD: Final = 6
_CONVERSATION_FIELD: Final = 9
_TURN_RESULTS_FIELD: Final = 1
_TURN_REPLY_FIELD: Final = 2


def program_input(state: RunState, activation: Activation) -> value_pb2.Value:
    """Return the input of a program, the same at every turn. Raises RenderError, and ValueNotReadable.

    It is the spec's of spawned work, else what a Goto carried, else what the template gives, else the last result.
    """
    if activation.given is not None:
        return activation.given
    entered = activation.entered_with
    if entered.handed is not None:
        return entered.handed
    action = _action(activation)
    if action.HasField("input_template"):
        # As the node was entered: what the program itself changed since must not change its input.
        view = View(state, entered, Delta())
        template = ArgsTemplate.compile(action.input_template)
        return from_json(template.render(view, max_bytes=MAX_RENDERED_BYTES))
    return entered.last_result if entered.last_result is not None else value_pb2.Value()


@dataclass(slots=True)
class PollInput:
    """The input of a poll."""

    task: Task

    def build(self, state: RunState) -> bytes:
        """Return the serialized TaskInput. What of the history is in it depends on who has the attempt."""
        activation = self.task.activation
        program = activation.program
        assert program is not None, "a program begins with its first poll"
        holds = program.holds and program.instance == self.task.instance
        head = transition_pb2.StepContext(
            run_id=state.run_id,
            node_id=activation.node.id,
            program=_action(activation).program,
            input=program_input(state, activation),
            turn=self.task.turn,
            history_start=self.task.turn if holds else 0,
        )
        _add_variables(head, state, activation)
        parts = [head.SerializeToString(deterministic=True)]
        parts.append(wire.join_repeated(_RESULTS_FIELD, program.told))
        if not holds:
            parts.append(wire.join_repeated(_HISTORY_FIELD, _history(activation)))
        if _action(activation).include_conversation:
            own = activation.delta.messages
            arranged = with_messages(state.conversation, own).arrange()
            parts.append(arranged.joined(_CONVERSATION_FIELD))
        return wire.length_delimited(_STEP_FIELD, b"".join(parts))


def _action(activation: Activation) -> graph_pb2.NodeAction.Step:
    action = activation.node.action
    assert isinstance(action, graph_pb2.NodeAction.Step)
    return action


def _add_variables(
    head: transition_pb2.StepContext, state: RunState, activation: Activation
) -> None:
    names = _action(activation).variables
    if not names:
        return
    view = View(state, activation.carried, activation.delta)
    for name in names:
        value = view.variable(name)
        if value is not None:
            head.variables[name].CopyFrom(value)


def _history(activation: Activation) -> Iterable[bytes]:
    assert activation.program is not None
    for turn in activation.program.turns:
        yield wire.join_repeated(_TURN_RESULTS_FIELD, turn.results) + wire.length_delimited(
            _TURN_REPLY_FIELD, turn.reply
        )


__all__ = ["PollInput", "program_input"]
