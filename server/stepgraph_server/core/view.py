"""What one node sees of the state, and how its outcome changes that.

Rules: a view is the shared base, which does not change during a superstep, with the activation's own writes over it. It is
never a copy. Conditions, expressions and templates read views and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stepgraph_server.core import json_text
from stepgraph_server.core.reducers import reduce
from stepgraph_server.core.state import Carried, Delta
from stepgraph_server.core.templates import JsonTextValue, JsonTreeValue, Template, TextValue
from stepgraph_server.core.values import to_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stepgraph.v1 import conversation_pb2, failure_pb2, state_pb2, value_pb2
    from stepgraph_server.core.conversation import Conversation
    from stepgraph_server.core.done import Done
    from stepgraph_server.core.expressions import Expression
    from stepgraph_server.core.graph import CompiledGraph
    from stepgraph_server.core.json_text import JsonValue
    from stepgraph_server.core.state import Activation, RunState
    from stepgraph_server.core.templates import Resolved
    from stepgraph_server.core.work import Work

#: Names that templates see beside the variables; they win over variables of the same name.
BUILT_IN_NAMES = ("last_result", "last_error", "decision")

_SHOWN_WHOLE: Final = ("stored", "blob")


class View:
    """The state as one node sees it."""

    __slots__ = ("_delta", "_state", "_work", "carried")

    def __init__(
        self, state: RunState, carried: Carried, delta: Delta, work: Work | None = None
    ) -> None:
        self._state = state
        self._delta = delta
        #: What is read and evaluated is counted here; a fold evaluates nothing, and counts nothing.
        self._work = work
        self.carried = carried

    def variable(self, name: str) -> value_pb2.Value | None:
        """Return a variable, or None if it is not set."""
        overlay = self._delta.overlay
        if name in overlay:
            return overlay[name]
        return self._state.variables.get(name)

    def variables(self) -> dict[str, value_pb2.Value]:
        """Return all variables."""
        merged = dict(self._state.variables)
        for name, value in self._delta.overlay.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
        return merged

    @property
    def iterations(self) -> int:
        """How many supersteps have started."""
        return self._state.iterations

    # The scope of templates.

    def lookup(self, name: str) -> Resolved | None:
        """Return what a template's name stands for, or None."""
        if self._work is not None:
            self._work.look_up()
        match name:
            case "last_result":
                return _resolve(name, self.carried.last_result)
            case "last_error":
                error = self.carried.last_error
                return None if error is None else JsonTreeValue(tree=failure_json(error))
            case "decision":
                decision = self.carried.decision
                return None if decision is None else JsonTreeValue(tree=decision_json(decision))
            case _:
                return _resolve(name, self.variable(name))

    def whole(self, text: str) -> value_pb2.Value | None:
        """Return the value that a template hands on without reading it: it is one placeholder alone, of what has no text.

        That is a stored value or a blob, which a message can show by reference; None for anything else.
        """
        name = Template.compile(text).lone_name()
        if not name:
            return None
        value = self.carried.last_result if name == "last_result" else self.variable(name)
        return value if value is not None and value.WhichOneof("kind") in _SHOWN_WHOLE else None

    def names(self) -> Iterator[str]:
        """List the names that exist."""
        yield from sorted(self.variables())
        yield from (name for name in BUILT_IN_NAMES if self.lookup(name) is not None)

    # What expressions see.

    def evaluate(self, expression: Expression) -> JsonValue:
        """Evaluate an expression, and count that. Raises ExpressionError, and ValueNotReadable for stored values."""
        return expression.evaluate(self.bindings(expression), self._work)

    def evaluate_bool(self, expression: Expression, *, traversals: int = 0) -> bool:
        """Evaluate a condition, and count that. Raises like `evaluate`."""
        bindings = self.bindings(expression, traversals=traversals)
        return expression.evaluate_bool(bindings, self._work)

    def bindings(self, expression: Expression, *, traversals: int = 0) -> dict[str, object]:
        """Return what an expression names, and nothing else of the state. Raises ValueNotReadable for stored values."""
        return {name: self._binding(name, traversals) for name in expression.roots().names}

    def _binding(self, root: str, traversals: int) -> object:
        carried = self.carried
        match root:
            case "vars":
                return _Variables(self)
            case "last_result":
                if carried.last_result is None:
                    return None
                return to_json(carried.last_result, name="last_result")
            case "last_error":
                return (
                    failure_json(carried.last_error) if carried.last_error else empty_failure_json()
                )
            case "decision":
                return decision_json(carried.decision)
            case "paradigm":
                return carried.paradigm
            case "iterations":
                return self._state.iterations
            case "messages_count":
                return len(self._state.conversation) + len(self._delta.messages)
            case "last_message":
                return self._last_message()
            case _:
                return {"traversals": traversals}

    def _last_message(self) -> str:
        if self._delta.messages:
            return "".join(
                block.text.text
                for block in self._delta.messages[-1].content
                if block.HasField("text")
            )
        return self._state.conversation.last_text()


class _Variables(Mapping[str, object]):
    """The variables as expressions see them. Each is read when it is asked for, so that nothing parses what nobody needs."""

    __slots__ = ("_view",)

    def __init__(self, view: View) -> None:
        self._view = view

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._view.variable(name) is not None

    def __getitem__(self, name: str) -> JsonValue:
        value = self._view.variable(name)
        if value is None:
            raise KeyError(name)
        return to_json(value, name=name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._view.variables())

    def __len__(self) -> int:
        return len(self._view.variables())


def _resolve(name: str, value: value_pb2.Value | None) -> Resolved | None:
    if value is None:
        return None
    match value.WhichOneof("kind"):
        case "text":
            return TextValue(text=value.text)
        case "json":
            return JsonTextValue(text=value.json)
        case None:
            return TextValue(text="")
        case _:
            # Blobs, stored values and secrets have no text here; to_json says so with a clear error.
            return JsonTreeValue(tree=to_json(value, name=name))


def failure_json(error: failure_pb2.Failure) -> JsonValue:
    """Return a failure as templates and expressions see it."""
    return {
        "code": error.code,
        "message": error.message,
        "source": error.source,
        # By key: a map that was read from a journal has another order than one that was just made, and this becomes text.
        "details": dict(sorted(error.details.items())),
    }


def empty_failure_json() -> JsonValue:
    """Return what expressions see where there is no failure: every field, empty."""
    return {"code": "", "message": "", "source": "", "details": {}}


def decision_json(decision: state_pb2.GraphDecision | None) -> JsonValue:
    """Return a decision as templates and expressions see it: every field, empty where it does not apply."""
    tree: dict[str, JsonValue] = {
        "kind": "",
        "text": "",
        "calls": [],
        "agent_kind": "",
        "task": "",
        "paradigm": "",
    }
    match decision.WhichOneof("kind") if decision is not None else None:
        case "direct_answer":
            assert decision is not None
            tree.update(kind="DirectAnswer", text=decision.direct_answer.text)
        case "tool_calls":
            assert decision is not None
            calls: list[JsonValue] = [
                {"id": call.id, "name": call.name, "args": _args_json(call.args)}
                for call in decision.tool_calls.calls
            ]
            tree.update(kind="ToolCalls", calls=calls)
        case "delegate":
            assert decision is not None
            tree.update(
                kind="Delegate",
                agent_kind=decision.delegate.agent_kind,
                task=decision.delegate.task,
            )
        case "switch_paradigm":
            assert decision is not None
            tree.update(kind="SwitchParadigm", paradigm=decision.switch_paradigm.paradigm)
        case None:
            pass
    return tree


def _args_json(args: str) -> JsonValue:
    try:
        return json_text.parse(args or "{}")
    except json_text.JsonTextError:
        # A model may write what is not JSON; conditions then see its text.
        return args


def settle(state: RunState, activation: Activation, done: Done) -> tuple[Carried, Delta]:
    """Return what an activation's carried part and delta are once it ends with `done`. Changes nothing.

    Raises ReducerError if a write does not fit its variable's reducer.
    """
    node = activation.node
    carried = activation.carried
    error = done.error
    if error is None and not node.works:
        error = carried.last_error
    decision, tools_digest = carried.decision, carried.tools_digest
    if done.decides and done.decision is not decision:
        # Only who makes a decision has offered tools for it; who hands one on hands on what it was made with.
        decision = done.decision
        tools_digest = activation.tools_digest if decision is not None else ""
    after = Carried(
        carried.last_result if done.value is None else done.value,
        error,
        decision,
        tools_digest,
        carried.paradigm if done.paradigm is None else done.paradigm,
        done.handed,
    )
    writes = done.writes
    if node.output_variable and done.value is not None:
        writes = (*writes, (node.output_variable, done.value))
    delta = activation.delta
    if done.notes:
        delta = replace(delta, notes=done.notes)
    # The result of a call is no output like others: without it the call would read as not run.
    if done.messages and (activation.call is not None or not node.append_none):
        messages = [*delta.messages, *done.messages]
        delta = Delta(delta.writes, delta.overlay, messages, delta.terminate, delta.notes)
    if writes:
        delta = Delta(
            [*delta.writes], dict(delta.overlay), delta.messages, delta.terminate, delta.notes
        )
        for name, value in writes:
            write(state, delta, name, value)
    return after, delta


def updated(
    state: RunState, activation: Activation, update: state_pb2.StateUpdate
) -> tuple[Carried, Delta]:
    """Return what an activation's carried part and delta are after an update of a step program. Changes nothing.

    Raises ReducerError if a write does not fit its variable's reducer.
    """
    carried, delta = activation.carried, activation.delta
    if update.HasField("decision"):
        decided = {"decision": update.decision, "tools_digest": activation.tools_digest}
        carried = replace(carried, **decided)  # type: ignore[arg-type]  # as in `carry`
    if update.HasField("paradigm"):
        carried = replace(carried, paradigm=update.paradigm)
    changed = Delta([*delta.writes], dict(delta.overlay), [*delta.messages], delta.terminate)
    # By name: a map has no order, and the same update must always give the same writes.
    for name in sorted(update.variables):
        write(state, changed, name, update.variables[name])
    for name in update.delete_variables:
        write(state, changed, name, None)
    if not activation.node.append_none:
        changed.messages.extend(update.messages)
    changed.terminate = changed.terminate or update.should_terminate
    return carried, changed


def with_messages(
    conversation: Conversation, added: Sequence[conversation_pb2.Message]
) -> Conversation:
    """Return a conversation with more messages behind it: itself if there are none, else a copy."""
    if not added:
        return conversation
    longer = conversation.copy()
    for message in added:
        longer.append(message)
    return longer


def write(state: RunState, delta: Delta, name: str, value: value_pb2.Value | None) -> None:
    """Write a variable into a delta, through its reducer. Raises ReducerError."""
    delta.writes.append((name, value))
    if value is None:
        delta.overlay[name] = None
        return
    base = delta.overlay[name] if name in delta.overlay else state.variables.get(name)
    delta.overlay[name] = reduced(state.graph, name, base, value)


def reduced(
    graph: CompiledGraph, name: str, base: value_pb2.Value | None, value: value_pb2.Value
) -> value_pb2.Value:
    """Return what a variable is after a write. Raises ReducerError."""
    reducers: Mapping[str, int] = graph.reducers
    kind = reducers.get(name)
    return value if kind is None else reduce(kind, base, value, variable=name)
