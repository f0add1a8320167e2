"""LlmInfer: the request that a model gets, and what is kept of it between turns."""

from __future__ import annotations

from stepgraph.v1 import failure_pb2, llm_pb2, task_pb2
from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Await, Effect, Fail
from stepgraph_server.core.state import Carried
from tests.support.core_pieces import compiled, poll_of, started, state_of, succeeded, text, world

GRAPH = compiled(
    """
paradigms: {p: {system_prompt: "I am {{x}}.", tool_filter: {allow: [read_*]}}}
nodes:
  - id: a
    llm_infer:
      include_tool_definitions: true
      temperature: 0.5
      max_tokens: 9
      thinking_budget: 3
      tool_choice: {required: {}}
      model: "{{model}}"
      prompt_template: "Say {{x}}"
      use_streaming: true
      context: {last_messages: 1}
  - {id: b, llm_infer: {system_prompt_override: "", include_tool_definitions: true, tool_filter_override: {allow: [write]}}}
edges: [{from: a, to: b}]
"""
)


def request(node: str, carried: Carried | None = None) -> tuple[Effect, llm_pb2.LlmRequest]:
    state = state_of(GRAPH, x=text("Emma"), model=text("large"))
    poll = poll_of(state, node, carried)
    for name in ("read_it", "write"):
        poll.world.offer(name, "{}")  # type: ignore[union-attr]  # the played world
    step = poll_action(poll)
    assert isinstance(step, Await)
    (effect,) = step.effects
    assert isinstance(effect, Effect)
    return effect, task_pb2.TaskInput.FromString(effect.prepared.build(state)).llm


def test_a_request_has_all_options_and_the_paradigms_prompt_and_tools() -> None:
    effect, made = request("a", Carried(paradigm="p"))
    assert effect.key == ("llm", "large")
    assert effect.message_count == 1
    assert (made.system_prompt, made.model, made.streaming) == ("I am Emma.", "large", True)
    assert (made.temperature, made.max_tokens, made.thinking_budget) == (0.5, 9, 3)
    assert made.HasField("tool_choice")
    assert [tool.name for tool in made.tools] == ["read_it"]
    assert made.messages[0].content[0].text.text == "Say Emma"


def test_what_the_node_says_wins_over_the_paradigm() -> None:
    effect, made = request("b", Carried(paradigm="p"))
    assert effect.prompt_digest == ""
    assert (made.system_prompt, made.model) == ("", "m")
    assert [tool.name for tool in made.tools] == ["write"]


def test_without_a_paradigm_all_tools_are_offered() -> None:
    assert [tool.name for tool in request("a")[1].tools] == ["read_it", "write"]


def test_a_call_that_failed_fails_the_node() -> None:
    why = failure_pb2.Failure(code="X")
    assert poll_action(poll_of(state_of(GRAPH), "b", None, why)) == Fail(failure=why)


def test_of_a_prompt_that_differs_at_every_turn_only_the_last_request_is_kept() -> None:
    state = state_of(GRAPH, x=text("Emma"), model=text("large"))
    for name in ("Emma", "Fanny"):
        state.variables["x"] = text(name)
        step = poll_action(poll_of(state, "a", Carried(paradigm="p")))
        assert isinstance(step, Await)
        (effect,) = step.effects
        assert isinstance(effect, Effect)
        made = task_pb2.TaskInput.FromString(effect.prepared.build(state)).llm
        assert made.system_prompt == f"I am {name}."
    assert len([key for key in state.caches if key[0] == "request"]) == 1  # type: ignore[index]  # keys are tuples


def test_what_is_offered_is_made_once_until_it_changes() -> None:
    graph = compiled(
        """
nodes: [{id: a, llm_infer: {include_tool_definitions: true, system_prompt_override: Hello}}]
edges: [{from: a, to: a}]
max_iterations: 3
"""
    )
    run = started(graph, world())
    for turn in (1, 2, 3):
        if turn == 2:
            run.world.offer("t", "{}")
        reply = task_pb2.TaskResult()
        reply.llm.message.content.add().text.text = "x"
        run.happen(succeeded(f"{turn}/a/t0/e0", reply))
    offered = [event.tools_offered for event in run.events if event.HasField("tools_offered")]
    assert [[tool.name for tool in fact.tools] for fact in offered] == [[], ["t"]]


def test_a_schema_may_ask_for_something_else_than_an_object() -> None:
    graph = compiled("nodes: [{id: a, llm_infer: {output_schema: {type: array}}}]")
    run = started(graph)
    reply = task_pb2.TaskResult()
    reply.llm.message.content.add().text.text = "[1]"
    run.happen(succeeded("1/a/t0/e0", reply))
    assert not run.state.variables
    assert run.state.carried.last_result is not None
    assert run.state.carried.last_result.json == "[1]"
