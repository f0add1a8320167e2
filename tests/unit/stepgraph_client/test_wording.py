from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1.conversation_pb2 import (
    ContentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from stepgraph.v1.event_pb2 import SkipReason, TaskLossReason
from stepgraph.v1.executor_service_pb2 import Capability
from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptAnswer, SuspendReason
from stepgraph.v1.llm_pb2 import LlmResponse, Usage
from stepgraph.v1.run_pb2 import GraphVersion
from stepgraph.v1.task_pb2 import Requirement, TaskResult
from stepgraph.v1.value_pb2 import Blob, Secret, StoredValue, Value
from stepgraph_client import answers, wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value(text="a\n  b"), "a b"),
        (Value(text="x" * 200), "x" * 119 + "…"),
        (Value(json='{"a": 1}'), '{"a": 1}'),
        (Value(blob=Blob(media_type="image/png", data=b"x" * 2048)), "image/png, 2 KiB"),
        (Value(blob=Blob(data=b"x")), "bytes, 1 B"),
        (
            Value(stored=StoredValue(digest="sha256:" + "a" * 64, size_bytes=5 << 20)),
            "a stored value, 5 MiB, sha256:aaaaaaaaaaaa…",
        ),
        (Value(secret=Secret(name="key")), "the secret key"),
        (Value(), ""),
    ],
    ids=range(8),
)
def test_a_value_is_one_bounded_line(value, text) -> None:
    assert wording.value_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Value(text="a\nb"), "a\nb"),
        (
            Value(json='{"n":9007199254740993,"l":[1.0,{}],"e":[]}'),
            '{\n  "n": 9007199254740993,\n  "l": [\n    1.0,\n    {}\n  ],\n  "e": []\n}',
        ),
        (Value(json="broken"), "broken"),
        (Value(secret=Secret(name="key")), "the secret key"),
    ],
    ids=range(4),
)
def test_a_result_is_shown_in_full_with_every_digit(value, text) -> None:
    assert wording.full_value_text(value) == text


def test_every_requirement_and_capability_has_words() -> None:
    assert {
        kind: wording.requirement_text(_set(Requirement(), kind)) for kind in _kinds(Requirement)
    } == {
        "llm": "model ",
        "tool": "tool ",
        "agent": "agent ",
        "condition": "condition ",
        "step": "step program ",
        "effect": "effect ",
    }
    known = [wording.capability_text(_set(Capability(), kind)) for kind in _kinds(Capability)]
    unknown = wording.capability_text(Capability())
    assert unknown not in known
    assert wording.requirement_text(Requirement()) == unknown
    tool = Capability.Tool(requires_approval=True)
    tool.definition.name = "deploy"
    assert wording.capability_text(Capability(tool=tool)) == "tool deploy (asks first)"


def test_every_result_has_words() -> None:
    assert all(wording.result_text(_set(TaskResult(), kind)) for kind in _kinds(TaskResult))
    assert wording.result_text(TaskResult()) == "done"
    broken = TaskResult()
    broken.tool.is_error = True
    broken.tool.output.text = "no such city"
    assert wording.result_text(broken) == "reported an error: no such city"
    step = TaskResult()
    step.step.transition.await_effects.SetInParent()
    assert wording.result_text(step) == "wants await"
    holds = TaskResult(condition=TaskResult.Condition(holds=True))
    assert wording.result_text(holds) == "holds"


def test_a_reply_is_what_the_model_wants_else_what_it_says() -> None:
    reply = LlmResponse(usage=Usage(input_tokens=1200, output_tokens=5))
    reply.message.content.append(ContentBlock(text=TextBlock(text="Sunny.")))
    reply.message.content.append(ContentBlock(thinking=ThinkingBlock(text="hidden")))
    reply.message.content.append(ContentBlock(image=ImageBlock()))
    assert wording.reply_text(reply) == "Sunny. [image] (1,200 + 5 tokens)"
    call = ToolCallBlock(name="search", args='{"q": "x"}')
    reply.message.content.append(ContentBlock(tool_call=call))
    assert wording.reply_text(reply) == 'wants search({"q": "x"}) (1,200 + 5 tokens)'
    assert wording.reply_text(LlmResponse()) == "answered"


def test_every_question_and_answer_has_words() -> None:
    texts = [
        wording.question_text(Interrupt(reason=_set(SuspendReason(), kind)))
        for kind in _kinds(SuspendReason)
    ]
    assert texts[0] == "go on with ?"
    assert wording.question_text(Interrupt()) not in texts
    assert all(
        wording.answer_text(_set(InterruptAnswer(), kind)) for kind in _kinds(InterruptAnswer)
    )
    assert wording.answer_text(answers.proceed_with({"a": "1", "b": "2"})) == "proceed with a, b"
    assert wording.answer_text(answers.abort()) == "abort"
    assert wording.answer_text(answers.abort("late")) == "abort: late"
    assert "does not know" in wording.answer_text(InterruptAnswer())


def test_every_reason_has_words_and_unknown_ones_too() -> None:
    skips = {wording.skip_text(each) for each in (*SkipReason.values(), 99)}
    losses = {wording.loss_text(each) for each in (*TaskLossReason.values(), 99)}
    assert len(skips) == len(SkipReason.values())
    assert len(losses) == len(TaskLossReason.values())


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (GraphVersion(name="g", version=3), "g@3"),
        (GraphVersion(name="g"), "g"),
        (GraphVersion(digest="sha256:" + "a" * 64), "sha256:aaaaaaaaaaaa"),
    ],
    ids=range(3),
)
def test_a_graph_is_named_as_it_can_be(graph, text) -> None:
    assert wording.graph_text(graph) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (12, "12 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7800, "2 h 10 min"),
        (7200, "2 h"),
    ],
)
def test_spans_are_told_in_units_that_fit(seconds, text) -> None:
    assert wording.span_text(seconds) == text


def test_times_and_lists_are_short() -> None:
    assert wording.time_text(Timestamp()) == ""
    assert wording.time_text(Timestamp(seconds=1769817605)) == "2026-01-31 00:00:05Z"
    assert wording.seconds_between(Timestamp(seconds=5), Timestamp(seconds=3)) == 0
    assert wording.names_text([str(n) for n in range(10)]) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
    assert wording.labels_text({"b": "2", "a": "1"}) == "a=1, b=2"


def _kinds(message: type) -> list[str]:
    return [each.name for each in message.DESCRIPTOR.oneofs_by_name["kind"].fields]


def _set(message, kind: str):
    getattr(message, kind).SetInParent()
    return message


def test_calls_and_their_results_are_part_of_what_was_said() -> None:
    result = ToolResultBlock(content=[ContentBlock(text=TextBlock(text="3"))])
    trouble = ToolResultBlock(is_error=True, content=[ContentBlock(text=TextBlock(text="no"))])
    blocks = [
        ContentBlock(text=TextBlock(text="look:")),
        ContentBlock(tool_call=ToolCallBlock(name="stock", args='{"a": 1}')),
        ContentBlock(tool_result=result),
        ContentBlock(tool_result=trouble),
    ]
    assert wording.blocks_text(blocks) == 'look: [stock({"a": 1})] 3 error: no'
