"""What programs return, as replies."""

from __future__ import annotations

import pytest

from stepgraph.v1 import failure_pb2, state_pb2, transition_pb2
from stepgraph_client import StepContext, done, effects, goto
from stepgraph_client.effects import EffectFailed
from stepgraph_client.step_context import ALL_VARIABLES, CONVERSATION
from stepgraph_client.step_replies import answer_of, ending_of, failed_with, refuse_what_was_read
from stepgraph_client.task_errors import Failed
from stepgraph_client.values import from_value, to_value

Transition = transition_pb2.Transition


@pytest.fixture
def ctx():
    return StepContext(transition_pb2.StepContext(), None)


def test_a_function_may_answer_in_every_form(ctx):
    """An effect, a pause, an end, a transition, or a whole reply."""
    effect = effects.tool("t")
    for returned in (
        effect,
        effects.await_effects(effect),
        effects.await_effects(effect).transition,
    ):
        reply = answer_of(returned, ctx)
        assert reply.transition.await_effects.effects[0].tool.name == "t"
        assert reply.holds_turns
    assert answer_of(done("x"), ctx).transition.HasField("done")
    assert not answer_of(goto("n"), ctx).holds_turns


def test_a_whole_reply_is_joined_with_the_updates_of_its_context(ctx):
    """And the message that was returned stays as it was."""
    given = transition_pb2.StepReply(
        transition=done().transition, update=state_pb2.StateUpdate(variables={"a": to_value(1)})
    )
    ctx.update(variables={"b": 2})
    reply = answer_of(given, ctx)
    assert set(reply.update.variables) == {"a", "b"}
    assert set(given.update.variables) == {"a"}


def test_what_is_returned_is_the_value_of_the_node():
    """None is empty; an end is taken as it is."""
    assert from_value(ending_of({"a": 1}).done.value) == {"a": 1}
    assert not ending_of(None).done.HasField("value")
    assert ending_of(goto("n")).goto.target == "n"
    assert ending_of(done("x").transition).done.value.text == "x"


@pytest.mark.parametrize("returned", [effects.tool("t"), Transition(), transition_pb2.StepReply()])
def test_what_should_have_been_awaited_is_refused(returned):
    """It would silently not happen."""
    with pytest.raises(Failed, match="await or yield this"):
        ending_of(returned)


def test_a_value_without_json_is_refused():
    """As what tools return."""
    with pytest.raises(Failed, match="no JSON"):
        ending_of(float("nan"))


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        (failure_pb2.FAILURE_CATEGORY_BUSINESS, "business"),
        (failure_pb2.FAILURE_CATEGORY_LIMIT, "limit"),
        (failure_pb2.FAILURE_CATEGORY_TIME_LIMIT, "technical"),
        (failure_pb2.FAILURE_CATEGORY_TECHNICAL, "technical"),
        (failure_pb2.FAILURE_CATEGORY_CANCELLED, "business"),
    ],
)
def test_a_failure_keeps_its_code_and_is_not_tried_again(category, expected):
    """The same poll would find the same failure."""
    failure = failure_pb2.Failure(code="X1", message="no", category=category, details={"a": "b"})
    result = transition_pb2.EffectResult(label="tool t")
    failed = failed_with(EffectFailed(failure, result), 3)
    assert (failed.code, failed.message, failed.category) == ("X1", "tool t: no", expected)
    assert failed.retryable is False
    assert failed.details == {"a": "b", "effect": "tool t", "turn": "3"}


def test_what_was_not_read_may_be_written():
    """Most programs only write."""
    update = state_pb2.StateUpdate(variables={"a": to_value(1)}, messages=[{}])
    refuse_what_was_read(update, {"b"}, 0)


@pytest.mark.parametrize(
    ("update", "read", "named"),
    [
        ({"variables": {"a": to_value(1)}}, {"a"}, "a"),
        ({"delete_variables": ["a"]}, {"a", "b"}, "a"),
        ({"variables": {"a": to_value(1)}}, {ALL_VARIABLES}, "a"),
        ({"messages": [{}]}, {CONVERSATION}, "the conversation"),
    ],
)
def test_what_was_read_may_not(update, read, named):
    """A replay would see the write where the program has read."""
    with pytest.raises(Failed, match=f"turn 2 changes {named}") as caught:
        refuse_what_was_read(state_pb2.StateUpdate(**update), read, 2)
    assert caught.value.details == {"turn": "2"}
