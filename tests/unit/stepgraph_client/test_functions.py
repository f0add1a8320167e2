"""Which function a task is for, how it is called, and what capability declares it."""

from __future__ import annotations

import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2, value_pb2
from stepgraph_client._functions import Functions, describe, key_of
from stepgraph_client.task_context import ConditionContext, TaskContext
from stepgraph_client.tools import tool_of

Input = task_pb2.TaskInput
CTX = object()


def llm(model):
    task_input = Input()
    task_input.llm.model = model
    return task_input


def tool(name, args=""):
    return Input(tool=Input.Tool(name=name, args=args))


def agent(kind, task=""):
    return Input(agent=Input.Agent(agent_kind=kind, task=task))


CONDITION = Input(condition=Input.Condition(name="is_safe"))
EFFECT = Input(effect=Input.Effect(kind="mail", payload=value_pb2.Value(text="hi")))


@pytest.fixture
def functions():
    return Functions()


def call(functions, task_input):
    return functions.find(task_input).bind(task_input, CTX)()


def test_each_kind_gets_its_own_input_and_the_context(functions):
    functions.add_models(("m",), lambda request, ctx: (request.model, ctx))
    functions.add_agent("k", lambda task, ctx: (task, ctx))
    functions.add_condition("is_safe", lambda ctx: ctx)
    functions.add_effect("mail", lambda payload, ctx: (payload.text, ctx))
    add = lambda a, ctx: (a, ctx)  # noqa: E731
    functions.add_tool(tool_of(add, name="add"), add, requires_approval=False)
    assert call(functions, llm("m")) == ("m", CTX)
    assert call(functions, agent("k", "do it")) == ("do it", CTX)
    assert call(functions, CONDITION) is CTX
    assert call(functions, EFFECT) == ("hi", CTX)
    assert call(functions, tool("add", '{"a": 1}')) == (1, CTX)


def test_the_context_may_be_left_out(functions):
    functions.add_models(("m",), lambda request: request.model)
    functions.add_agent("k", lambda task: task)
    functions.add_condition("is_safe", lambda: True)
    functions.add_effect("mail", lambda payload: payload.text)
    assert call(functions, llm("m")) == "m"
    assert call(functions, agent("k", "do it")) == "do it"
    assert call(functions, CONDITION) is True
    assert call(functions, EFFECT) == "hi"


def test_a_function_that_takes_something_else_is_refused_when_it_is_declared(functions):
    with pytest.raises(TypeError, match="must take 1 argument"):
        functions.add_agent("k", lambda: None)
    with pytest.raises(TypeError, match="must take 1 argument"):
        functions.add_models(("m",), lambda a, b, c: None)
    with pytest.raises(TypeError, match="must take 0 argument"):
        functions.add_condition("c", lambda a, b: True)


def test_a_model_is_found_exactly_or_by_its_longest_prefix(functions):
    for name in ("gpt-*", "gpt-4-*", "gpt-4-mini"):
        functions.add_models((name,), lambda request, ctx, name=name: name)
    assert call(functions, llm("gpt-3")) == "gpt-*"
    assert call(functions, llm("gpt-4-large")) == "gpt-4-*"
    assert call(functions, llm("gpt-4-mini")) == "gpt-4-mini"
    assert functions.find(llm("claude")) is None


def test_what_is_unknown_is_not_found(functions):
    newer = Input.FromString(bytes.fromhex("ba3e00"))  # field 999, of a version to come
    for task_input in (tool("x"), agent("x"), CONDITION, EFFECT, newer, Input(step={})):
        assert functions.find(task_input) is None
    assert key_of(newer) == ("", "")
    assert describe(key_of(newer)) == "an unknown kind of work"
    assert describe(key_of(tool("x"))) == "tool x"


def test_the_same_name_twice_is_refused(functions):
    functions.add_agent("k", lambda task: None)
    with pytest.raises(ValueError, match="agent k already"):
        functions.add_agent("k", lambda task: None)
    functions.add_models(("a", "b"), lambda request: "")
    with pytest.raises(ValueError, match="llm b already"):
        functions.add_models(("c", "b"), lambda request: "")


def test_capabilities_declare_what_there_is(functions):
    search = tool_of(lambda query: query, name="search")
    assert functions.add_models(("a", "b-*"), lambda request: "") == pb.Capability(
        llm=pb.Capability.Llm(models=["a", "b-*"])
    )
    functions.add_agent("k", lambda task: None)
    functions.add_condition("c", lambda: True)
    functions.add_effect("e", lambda payload: None)
    functions.add_tool(search, lambda query: query, requires_approval=True)
    assert [each.WhichOneof("kind") for each in functions.capabilities] == [
        *("llm", "agent", "condition", "effect", "tool")
    ]
    assert functions.capabilities[4].tool.requires_approval
    assert functions.capabilities[4].tool.definition == search.definition


def test_async_functions_are_told_from_plain_ones(functions):
    async def async_agent(task):
        pass

    class AsyncObject:
        async def __call__(self, task):
            pass

    functions.add_agent("a", async_agent)
    functions.add_agent("b", AsyncObject())
    functions.add_agent("c", lambda task: None)
    assert [functions.find(agent(kind)).is_async for kind in "abc"] == [True, True, False]


def test_conditions_have_a_context_of_their_own(functions):
    functions.add_condition("is_safe", lambda ctx: True)
    functions.add_agent("k", lambda task: None)
    assert functions.find(CONDITION).context_type is ConditionContext
    assert functions.find(agent("k")).context_type is TaskContext


def test_a_step_that_nobody_can_take_is_named() -> None:
    """The program of a step says what is missing."""
    task_input = task_pb2.TaskInput()
    task_input.step.program = "negotiate"
    assert describe(key_of(task_input)) == "step negotiate"


def test_a_step_program_is_declared_by_its_name(functions):
    """It takes its context, and nothing else."""
    functions.add_step("p", lambda ctx: None)
    assert functions.capabilities == [pb.Capability(step=pb.Capability.Step(program="p"))]
    assert functions.find(Input(step={"program": "p"})) is not None
    for bad in (lambda: None, lambda ctx, more: None):
        with pytest.raises(TypeError, match="its StepContext"):
            functions.add_step("q", bad)
