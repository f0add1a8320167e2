"""Step programs, turn by turn: polled, and what they answered carried out.

Rules: where a program is follows from the folded state, so it can be taken up at any point: a reply that is recorded is never
asked for again, and what of it was not started yet is started. Nothing here ends a node; what is left of a program is told
to the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from stepgraph.v1 import graph_pb2
from stepgraph_server.core import maps, scheduling, spawning, suspending
from stepgraph_server.core.actions.step import Done, Fail
from stepgraph_server.core.budget import budget_failure
from stepgraph_server.core.failures import failure
from stepgraph_server.core.step_context import PollInput, program_input
from stepgraph_server.core.step_effects import (
    child_of,
    effect_of,
    sleep_end,
    sleep_label,
    sleeps,
)
from stepgraph_server.core.templates import RenderError
from stepgraph_server.core.values import ValueNotReadable

if TYPE_CHECKING:
    from stepgraph_server.core.state import Activation
    from stepgraph_server.core.step_program import StepProgram
    from stepgraph_server.core.turn import Turn

DEFAULT_MAX_TURNS: Final = 24
_SPEND_TOKENS: Final = frozenset({"llm", "graph"})


def go_on(turn: Turn, activation: Activation) -> Done | Fail | Activation | None:
    """Let a program go on as far as it can. Returns how its node ends, or what it spawns next, or None while it waits."""
    if activation.program is None:
        if activation.node.action_kind == "step":
            return _poll(turn, activation, 0)
        problem = maps.begin(turn, activation)
        if problem is not None:
            return problem
    program = activation.program
    assert program is not None
    if program.failure is not None:
        return Fail(failure=program.failure)
    return None if program.transition is None else _carry_out(turn, activation, program)


def _carry_out(
    turn: Turn, activation: Activation, program: StepProgram
) -> Done | Fail | Activation | None:
    assert program.transition is not None
    kind = program.transition.WhichOneof("kind")
    match kind:
        case "await_effects":
            return _await(turn, activation, program)
        case "goto" | "done":
            return ending(activation)
        case "suspend":
            if program.is_answered:
                return _poll(turn, activation, program.turn + 1)
            suspending.suspend(turn, activation, program.transition.suspend)
            return None
        case "spawn":
            return _join(turn, activation, program)
        case None:
            raise AssertionError(kind)
        case _:
            assert_never(kind)


def _join(
    turn: Turn, activation: Activation, program: StepProgram
) -> Done | Fail | Activation | None:
    spawn = activation.spawn
    assert spawn is not None
    if spawn.failure is not None:
        return Fail(failure=spawn.failure)
    if not spawn.decided:
        return spawning.next_child(turn.state, activation)
    if activation.node.action_kind == "map":
        return maps.too_large(turn, activation) or ending(activation)
    return _poll(turn, activation, program.turn + 1)


def ending(activation: Activation) -> Done:
    """Return how a node ends, as its program said it last."""
    program = activation.program
    assert program is not None
    assert program.transition is not None
    if activation.node.action_kind == "map":
        return maps.ending(activation)
    if program.transition.HasField("goto"):
        # A carry that is absent means empty, as the value of Done does.
        return Done(target=program.transition.goto.target, handed=program.transition.goto.carry)
    return Done(value=program.transition.done.value)


def _poll(turn: Turn, activation: Activation, number: int) -> Fail | None:
    node = activation.node
    action = node.action
    assert isinstance(action, graph_pb2.NodeAction.Step)
    most = action.max_turns or DEFAULT_MAX_TURNS
    if number >= most:
        message = (
            f"the program {action.program!r} has had its {most} turns (max_turns) and is not done; turn {number} was not "
            "polled. Raise max_turns, or await more in one turn"
        )
        details = {"max_turns": str(most), "turn": str(number), "program": action.program}
        return Fail(failure=failure("MAX_TURNS", message, source=node.id, details=details))
    if number == 0:
        spent = budget_failure(turn.state, activation)
        if spent is not None:
            return Fail(failure=spent)
        try:
            # It is the same at every turn, so it is only here that it may turn out not to work.
            program_input(turn.state, activation)
        except (RenderError, ValueNotReadable) as error:
            message = f"{node.id}: input_template: {error}"
            return Fail(failure=failure("TEMPLATE_FAILED", message, source=node.id))
    scheduling.schedule_poll(turn, activation, action.program, number, PollInput)
    return None


def _await(turn: Turn, activation: Activation, program: StepProgram) -> Fail | None:
    """Start what was not started yet, as far as this decision may; poll again if what was awaited has ended."""
    assert program.transition is not None
    effects = program.transition.await_effects.effects
    first = program.started
    while program.started < len(effects):
        # One at least, or a decision with a small share would never come further.
        if program.started > first and turn.has_had_its_share(turn.world.limits):
            turn.agenda.append(activation)
            return None
        turn.work.begin_node(0)
        stopped = _start(turn, activation, program, program.started)
        if stopped is not None:
            return stopped
    return _poll(turn, activation, program.turn + 1) if program.wants_poll else None


def _start(turn: Turn, activation: Activation, program: StepProgram, index: int) -> Fail | None:
    opened = program.open[program.turn, index]
    if sleeps(opened.effect):
        sleep = opened.effect.sleep
        assert program.answered_at is not None
        end = sleep_end(sleep, program.answered_at)
        scheduling.schedule_sleep(turn, activation, sleep_label(sleep), end, program.turn, index)
        return None
    if opened.effect.WhichOneof("kind") in _SPEND_TOKENS:
        spent = budget_failure(turn.state, activation)
        if spent is not None:
            return Fail(failure=spent)
    if opened.effect.HasField("graph"):
        child = child_of(turn.state, opened.effect)
        scheduling.schedule_child(turn, activation, child, program.turn, index)
        return None
    try:
        effect = effect_of(turn.state, activation, opened)
    except (RenderError, ValueNotReadable) as error:
        message = f"turn {program.turn}: effects[{index}].llm.request.model: default_model: {error}"
        return Fail(failure=failure("TEMPLATE_FAILED", message, source=activation.node.id))
    scheduling.schedule(turn, activation, effect, program.turn, index)
    return None


__all__ = ["DEFAULT_MAX_TURNS", "ending", "go_on"]
