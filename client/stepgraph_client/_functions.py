"""The functions of an executor: which one a task is for, how it is called, and what its result means.

Rules: one Function per capability and name. A kind of work is one `add_…` here and one line in `key_of`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_client import task_results
from stepgraph_client.task_context import ConditionContext, TaskContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepgraph.v1 import task_pb2
    from stepgraph_client._step_holding import HeldPrograms
    from stepgraph_client.step_context import StepContext
    from stepgraph_client.tools import Tool

#: What a function is found by: the kind of work, and its name.
Key: TypeAlias = tuple[str, str]
#: Binds a function to the input of a task.
Bind: TypeAlias = "Callable[[task_pb2.TaskInput, TaskContext], Callable[[], object]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function of the user's, ready to be called.

    Attributes:
        bind: Makes a call of a task's input. Raises BadArguments.
        to_result: Makes a result of what was returned. Raises Failed.
        is_async: It is awaited on the loop; else it runs in a thread.
        context_type: What it is given as its context.
    """

    bind: Bind
    to_result: Callable[[object], task_pb2.TaskResult]
    is_async: bool
    context_type: type[TaskContext] = TaskContext


class Functions:
    """All functions of one executor."""

    def __init__(self, *, max_held_programs: int = 10_000) -> None:
        self._max_held_programs: Final = max_held_programs
        self._exact: Final[dict[Key, Function]] = {}
        self._prefixes: Final[dict[str, Function]] = {}
        self.capabilities: Final[list[pb.Capability]] = []
        #: Made with the first step program.
        self._programs: HeldPrograms | None = None

    def add_models(self, models: tuple[str, ...], call: Callable[..., object]) -> pb.Capability:
        """Answer calls of models; a name may end in `*`."""
        uniform = _with_context(call, own=1)
        function = Function(
            bind=lambda given, ctx: partial(uniform, given.llm, ctx),
            to_result=task_results.llm_result,
            is_async=_is_async(call),
        )
        for model in models:
            self._add(("llm", model), function)
            if model.endswith("*"):
                self._prefixes[model[:-1]] = function
        return self._declared(pb.Capability(llm=pb.Capability.Llm(models=models)))

    def add_tool(
        self, tool: Tool, call: Callable[..., object], *, requires_approval: bool
    ) -> pb.Capability:
        """Run a tool."""

        def bind(given: task_pb2.TaskInput, ctx: TaskContext) -> Callable[[], object]:
            arguments = tool.read(given.tool.args)
            if tool.context_name:
                arguments[tool.context_name] = ctx
            return partial(call, **arguments)

        function = Function(bind=bind, to_result=task_results.tool_result, is_async=_is_async(call))
        self._add(("tool", tool.definition.name), function)
        declared = pb.Capability.Tool(
            definition=tool.definition, requires_approval=requires_approval
        )
        return self._declared(pb.Capability(tool=declared))

    def add_agent(self, kind: str, call: Callable[..., object]) -> pb.Capability:
        """Be an agent."""
        uniform = _with_context(call, own=1)
        function = Function(
            bind=lambda given, ctx: partial(uniform, given.agent.task, ctx),
            to_result=task_results.agent_result,
            is_async=_is_async(call),
        )
        self._add(("agent", kind), function)
        return self._declared(pb.Capability(agent=pb.Capability.Agent(kind=kind)))

    def add_condition(self, name: str, call: Callable[..., object]) -> pb.Capability:
        """Decide a condition."""
        uniform = _with_context(call, own=0)
        function = Function(
            bind=lambda _, ctx: partial(uniform, ctx),
            to_result=task_results.condition_result,
            is_async=_is_async(call),
            context_type=ConditionContext,
        )
        self._add(("condition", name), function)
        return self._declared(pb.Capability(condition=pb.Capability.Condition(name=name)))

    def add_effect(self, kind: str, call: Callable[..., object]) -> pb.Capability:
        """Do work of a custom kind."""
        uniform = _with_context(call, own=1)
        function = Function(
            bind=lambda given, ctx: partial(uniform, given.effect.payload, ctx),
            to_result=task_results.effect_result,
            is_async=_is_async(call),
        )
        self._add(("effect", kind), function)
        return self._declared(pb.Capability(effect=pb.Capability.Effect(kind=kind)))

    def add_step(self, program: str, call: Callable[[StepContext], object]) -> pb.Capability:
        """Be a step program."""
        # Here, because most executors have none.
        from stepgraph_client._step_functions import StepFunction  # noqa: PLC0415
        from stepgraph_client._step_holding import HeldPrograms  # noqa: PLC0415

        if self._programs is None:
            self._programs = HeldPrograms(self._max_held_programs)
        step = StepFunction(_step_call(call), self._programs)
        self._add(
            ("step", program),
            Function(bind=step.bind, to_result=step.to_result, is_async=step.is_async),
        )
        return self._declared(pb.Capability(step=pb.Capability.Step(program=program)))

    def find(self, task_input: task_pb2.TaskInput) -> Function | None:
        """Return the function that a task is for; None if there is none, or the kind is not known."""
        key = key_of(task_input)
        found = self._exact.get(key)
        if found is None and key[0] == "llm":
            # Of several prefixes the longest says most.
            prefixes = [prefix for prefix in self._prefixes if key[1].startswith(prefix)]
            found = self._prefixes[max(prefixes, key=len)] if prefixes else None
        return found

    def _add(self, key: Key, function: Function) -> None:
        if key in self._exact:
            message = f"there is a function for {key[0]} {key[1]} already"
            raise ValueError(message)
        self._exact[key] = function

    def _declared(self, capability: pb.Capability) -> pb.Capability:
        self.capabilities.append(capability)
        return capability


def key_of(task_input: task_pb2.TaskInput) -> Key:
    """Return what the function for an input is found by; an empty kind if this version does not know it."""
    kind = task_input.WhichOneof("kind")
    match kind:
        case "llm":
            return kind, task_input.llm.model
        case "tool":
            return kind, task_input.tool.name
        case "agent":
            return kind, task_input.agent.agent_kind
        case "condition":
            return kind, task_input.condition.name
        case "effect":
            return kind, task_input.effect.kind
        case "step":
            return kind, task_input.step.program
        case None:
            # A kind that is newer than this version.
            return "", ""
        case _:
            assert_never(kind)


def describe(key: Key) -> str:
    """Return for people what a key is about."""
    return f"{key[0]} {key[1]}" if key[0] else "an unknown kind of work"


def _is_async(call: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(call) or (
        not inspect.isroutine(call) and inspect.iscoroutinefunction(type(call).__call__)
    )


def _with_context(call: Callable[..., object], *, own: int) -> Callable[..., object]:
    """Return something that takes a context after the `own` arguments, whether or not the function wants one.

    Raises:
        TypeError: It takes neither that many arguments nor one more.
    """
    signature = inspect.signature(call)
    if _takes(signature, own + 1):
        return call
    if not _takes(signature, own):
        message = f"{call!r} must take {own} argument(s), and may take a context after them"
        raise TypeError(message)
    return lambda *given: call(*given[:-1])


def _step_call(call: Callable[[StepContext], object]) -> Callable[[StepContext], object]:
    """Return a step program as it is. Raises TypeError: It does not take one argument."""
    if not _takes(inspect.signature(call), 1):
        message = f"{call!r} must take one argument, its StepContext"
        raise TypeError(message)
    return call


def _takes(signature: inspect.Signature, count: int) -> bool:
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True
