"""Effects as work for executors: what they need, what they are called, what their inputs are."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import task_pb2, transition_pb2
from stepgraph_server.core.actions.messages import user_message
from stepgraph_server.core.instants import SECOND, Instant
from stepgraph_server.core.step_effects import effect_of, sleep_end, sleep_label, sleeps
from stepgraph_server.core.step_program import OpenEffect
from tests.support.core_pieces import activation_of, compiled, state_of

GRAPH = compiled("nodes: [{id: a, step: {program: p}}]\n")


def _opened(tree: dict[str, object], messages: int = 0) -> OpenEffect:
    return OpenEffect(ParseDict(tree, transition_pb2.Effect()), messages)


@pytest.mark.parametrize(
    ("tree", "key", "label"),
    [
        ({"tool": {"name": "t", "args": "{}"}}, ("tool", "t", ""), "tool t"),
        ({"delegate": {"agent_kind": "k", "task": "secret"}}, ("agent", "k"), "agent k"),
        ({"custom": {"kind": "c", "payload": {"text": "secret"}}}, ("effect", "c"), "effect c"),
        ({"llm": {"request": {"system_prompt": "secret"}}}, ("llm", "m"), "llm m"),
    ],
)
def test_a_label_says_what_is_done_and_never_with_what(
    tree: dict[str, object], key: tuple[str, ...], label: str
) -> None:
    made = effect_of(state_of(GRAPH), activation_of(GRAPH, "a"), _opened(tree))
    assert (made.key, made.label) == (key, label)


def test_a_model_call_sees_what_was_there_when_it_was_asked_for() -> None:
    """A program that goes on meanwhile must not change the call of a try that comes later."""
    state, activation = state_of(GRAPH), activation_of(GRAPH, "a")
    activation.delta.messages += [user_message("first", "a"), user_message("later", "a")]
    state.conversation.append(user_message("before", "x"))
    request = {"include_conversation": True, "messages": [{"role": "ROLE_USER"}]}
    made = effect_of(state, activation, _opened({"llm": {"request": request}}, messages=1))
    sent = task_pb2.TaskInput.FromString(made.prepared.build(state)).llm
    texts = [block.text.text for message in sent.messages for block in message.content]
    assert texts == ["before", "first"]
    assert made.message_count == len(sent.messages) == 3
    assert not sent.include_conversation


def test_what_a_program_offers_to_a_model_is_a_set_of_tools_of_any_definition() -> None:
    request = {"tools": [{"name": "t", "input_schema": "{}"}]}
    made = effect_of(
        state_of(GRAPH), activation_of(GRAPH, "a"), _opened({"llm": {"request": request}})
    )
    assert made.tools is not None
    assert made.tools.offered["t"].digest == ""


def test_options_come_with_the_effect() -> None:
    tree = {"tool": {"name": "t"}, "options": {"selector": {"zone": "east"}}}
    made = effect_of(state_of(GRAPH), activation_of(GRAPH, "a"), _opened(tree))
    assert made.options is not None
    assert made.options.selector == {"zone": "east"}


def test_a_sleep_ends_a_span_after_its_reply_or_at_a_time() -> None:
    span = ParseDict({"duration": "90s"}, transition_pb2.Effect.Sleep())
    until = ParseDict({"until": "1970-01-01T00:00:02Z"}, transition_pb2.Effect.Sleep())
    start = Instant(SECOND)
    assert sleep_end(span, start) == 91 * SECOND
    assert sleep_end(until, start) == 2 * SECOND
    assert sleep_label(span) == "sleep 90 s"
    assert sleep_label(until) == "sleep until 1970-01-01T00:00:02Z"
    assert sleeps(transition_pb2.Effect(sleep=span))


def test_an_effect_that_nobody_performs_is_a_fault_of_ours() -> None:
    """It is refused with the reply, so it never comes here."""
    tree = {"graph": {"graph_ref": {"reference": "g"}}}
    with pytest.raises(AssertionError, match="graph"):
        effect_of(state_of(GRAPH), activation_of(GRAPH, "a"), _opened(tree))
