"""RunRequestedTools: all calls of the decision that are its own, or none."""

from __future__ import annotations

from stepgraph.v1 import conversation_pb2, state_pb2, task_pb2
from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Answered, Await, Done
from stepgraph_server.core.state import Carried
from tests.support.core_pieces import compiled, poll_of, state_of, text

GRAPH = compiled("nodes: [{id: a, run_requested_tools: {max_concurrency: 2}}]")
CALL = conversation_pb2.ToolCallBlock(id="1", name="t", args="{}")
CARRIED = Carried(
    decision=state_pb2.GraphDecision(
        tool_calls=state_pb2.GraphDecision.ToolCalls(count=1, calls=[CALL])
    )
)


def test_without_a_call_there_is_no_work() -> None:
    assert poll_action(poll_of(state_of(GRAPH), "a", Carried())) == Done(decides=True)


def test_a_call_of_a_tool_that_was_not_offered_is_answered_at_once() -> None:
    state = state_of(GRAPH)
    block = conversation_pb2.ContentBlock(tool_call=CALL)
    message = conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, content=[block])
    state.conversation.append(message)
    step = poll_action(poll_of(state, "a", CARRIED))
    assert isinstance(step, Await)
    assert step.max_concurrency == 2
    (answered,) = step.effects
    assert isinstance(answered, Answered)
    assert answered.result.tool.is_error


def test_of_one_reply_no_more_calls_are_performed_than_may_be() -> None:
    graph = compiled("nodes: [{id: a, run_requested_tools: {max_calls: 1}}]")
    calls = [conversation_pb2.ToolCallBlock(id=id_, name="t", args="{}") for id_ in "123"]
    decision = state_pb2.GraphDecision(
        tool_calls=state_pb2.GraphDecision.ToolCalls(count=3, calls=calls)
    )
    state = state_of(graph)
    blocks = [conversation_pb2.ContentBlock(tool_call=call) for call in calls]
    state.conversation.append(
        conversation_pb2.Message(role=conversation_pb2.ROLE_ASSISTANT, content=blocks)
    )

    step = poll_action(poll_of(state, "a", Carried(decision=decision)))

    assert isinstance(step, Await)
    said = [effect.result.tool.output.text for effect in step.effects]
    assert ["no tool" in text for text in said] == [True, False, False]
    assert [effect.call_id for effect in step.effects] == ["1", "2", "3"]
    assert all(
        text.startswith("Not performed: of one reply at most 1 such call is") for text in said[1:]
    )


def test_one_call_gives_its_output_as_the_result() -> None:
    result = task_pb2.TaskResult()
    result.tool.output.text = "found"
    done = poll_action(poll_of(state_of(GRAPH), "a", CARRIED, result))
    assert isinstance(done, Done)
    assert done.value == text("found")
    assert done.error is None
