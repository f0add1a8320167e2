"""Approval of single tools: who needs it, what is asked, what may be answered. Whole runs of it stand in the scenarios."""

from __future__ import annotations

import pytest

from stepgraph.v1 import interrupt_pb2
from stepgraph_server.core.actions.calls import call_question
from stepgraph_server.core.tool_approvals import approved_digest, check_answer, check_tool_args
from tests.support import core_reports as reports
from tests.support.core_pieces import compiled, started, world

TOOL = 'nodes: [{id: a, tool_call: {tool_name: t, args_template: "{\\"n\\": 1}"}}]'
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}}}'


def question(schema: str = "") -> interrupt_pb2.Interrupt:
    tool = call_question("pay", "", call_id="c1")
    tool.input_schema = schema
    return interrupt_pb2.Interrupt(task_id="1/a/t0/e0", tool=tool)


def opened(text: str, *, requires_approval: bool = False) -> interrupt_pb2.Interrupt | None:
    played = world()
    played.offer("t", SCHEMA, requires_approval=requires_approval)
    run = started(compiled(text), played)
    found = [each.interrupt for each in run.state.questions.values()]
    assert bool(found) != bool(played.executors["e1"].room < 1_000_000)
    return found[0] if found else None


def test_an_executor_or_the_graph_can_want_approval() -> None:
    """Who wants it is one thing, whether the tool is called another: without approval nothing is handed out."""
    assert opened(TOOL) is None
    assert opened(TOOL, requires_approval=True) is not None
    assert opened(f"{TOOL}\napproval_filter: {{allow: [t]}}") is not None
    assert opened(f"{TOOL}\napproval_filter: {{allow: ['*'], deny: [t]}}") is None
    assert opened(f"{TOOL}\napproval_filter: {{}}") is None


def test_the_question_shows_the_call_as_it_would_be_sent() -> None:
    asked = opened(TOOL, requires_approval=True)
    assert asked is not None
    assert (asked.activation_id, asked.node_id, asked.task_id) == ("1/a", "a", "1/a/t0/e0")
    assert (asked.tool.tool_name, asked.tool.args) == ("t", '{"n":1}')
    assert asked.tool.input_schema == SCHEMA
    assert asked.tool.digest == call_question("t", '{"n":1}').digest
    assert asked.reason.human.prompt == "Call t?"


def test_a_node_with_a_question_of_its_own_keeps_its_deadline_for_that() -> None:
    text = (
        "nodes: [{id: a, interrupt: true, interrupt_options: {deadline: 5s}, "
        "step: p}]\napproval_filter: {allow: [t]}"
    )
    run = started(compiled(text))
    (own,) = run.state.questions.values()
    assert own.interrupt.HasField("deadline_time")
    assert not own.interrupt.task_id


@pytest.mark.parametrize("kind", ["proceed", "revise", "abort"])
def test_plain_answers_fit(kind: str) -> None:
    assert check_answer(question(SCHEMA), reports.answer(kind, [])) is None


@pytest.mark.parametrize(
    ("answer", "path", "text"),
    [
        (reports.answer("choose", ["x"]), "answer.choose", "pay waits for approval"),
        (
            interrupt_pb2.InterruptAnswer(reply=interrupt_pb2.InterruptAnswer.Reply()),
            "answer.reply",
            "not with reply",
        ),
        (
            reports.answer("proceed_with", ["message=hi"]),
            "answer.proceed_with.message",
            "nothing but its tool_args",
        ),
        (
            reports.answer("proceed_with", ['args={"n":"x"}']),
            "answer.proceed_with.tool_args",
            "they break the schema of pay",
        ),
        (interrupt_pb2.InterruptAnswer(), "answer", "no variant"),
    ],
)
def test_what_does_not_fit_is_named(
    answer: interrupt_pb2.InterruptAnswer, path: str, text: str
) -> None:
    problem = check_answer(question(SCHEMA), answer)
    assert problem is not None
    assert problem.path == path
    assert text in problem.message


def test_arguments_of_a_tool_without_a_schema_are_any_object() -> None:
    assert check_tool_args(question().tool, '{"x": [1]}', "p") is None
    for text in ("[1]", "{", "1"):
        assert check_tool_args(question().tool, text, "p") is not None


def test_a_schema_that_can_not_be_read_any_more_judges_nothing() -> None:
    assert check_tool_args(question('{"type": 5}').tool, "{}", "p") is None


def test_what_was_approved_is_told_by_its_digest() -> None:
    asked = question()
    assert approved_digest(asked, reports.answer("proceed", [])) == asked.tool.digest
    other = approved_digest(asked, reports.answer("proceed_with", ['args={"n":2}']))
    assert other == call_question("pay", '{"n":2}').digest != asked.tool.digest
    # The name is part of it, and an empty text is an empty object.
    assert call_question("pay", "").digest == call_question("pay", "{}").digest
    assert call_question("pay", "{}").digest != call_question("pay2", "{}").digest
