"""Spans of a run, made of its events."""

from __future__ import annotations

from stepgraph_server.telemetry.projection import RunProjection
from tests.support.otlp_events import (
    CALLER,
    STARTED,
    completed_node,
    events,
    scheduled,
    superstep,
    trace,
)

S = 1_000_000_000
LLM = {"llm": {"model": "m"}}
REPLY = {"llm": {"usage": {"input_tokens": 5, "output_tokens": 2}}}
DONE = ("run_completed", {})


def project(*facts, caller=""):
    return RunProjection(trace(caller)).take(events(*facts))


def test_attempts_stand_in_nodes_and_nodes_in_the_run():
    attempt, node, run = project(
        STARTED,
        superstep(),
        scheduled(LLM),
        ("task_completed", {"task_id": "1/a/t0/e0", "attempt": 1, "result": REPLY}),
        completed_node(),
        DONE,
        caller=CALLER,
    )
    assert [attempt.name, node.name, run.name] == ["chat m", "node a", "run g"]
    assert (attempt.parent_id, node.parent_id) == (node.span_id, run.span_id)
    assert run.parent_id == "00f067aa0ba902b7"
    assert [(each.start_ns, each.end_ns) for each in (attempt, node, run)] == [
        (3 * S, 4 * S),
        (2 * S, 5 * S),
        (1 * S, 6 * S),
    ]
    assert node.attributes["stepgraph.node.kind"] == "assign"
    assert run.attributes["stepgraph.usage.input_tokens"] == 5
    assert run.attributes["stepgraph.usage.output_tokens"] == 2
    assert run.attributes["stepgraph.run.status"] == "completed"


def test_a_span_comes_with_the_event_that_ends_it_and_not_before():
    it = RunProjection(trace())
    all_ = events(STARTED, superstep(), completed_node(), DONE)
    assert [[span.name for span in it.take([event])] for event in all_] == [
        [],
        [],
        ["node a"],
        ["run g"],
    ]
    assert it.sequence == 4


def test_the_same_events_give_the_same_spans():
    facts = (STARTED, superstep(), scheduled(LLM), completed_node(), DONE)
    assert [span.span_id for span in project(*facts)] == [span.span_id for span in project(*facts)]


def test_a_node_whose_edges_ask_executors_ends_when_they_have_answered():
    pending = completed_node(edges_pending=True)
    decided = ("edges_evaluated", {"activation_id": "1/a"})
    node, _ = project(STARTED, superstep(), pending, decided, DONE)
    assert node.end_ns == 4 * S
    failed = ("node_failed", {"activation_id": "1/a", "failure": {"code": "CONDITION_FAILED"}})
    node, _ = project(STARTED, superstep(), pending, failed, DONE)
    assert (node.error, node.attributes["stepgraph.outcome"]) == ("CONDITION_FAILED", "failed")


def test_what_fails_has_its_code_and_what_is_cancelled_is_no_error():
    node, run = project(
        STARTED,
        superstep(),
        ("node_failed", {"activation_id": "1/a", "failure": {"code": "DEAD_END", "message": "x"}}),
        ("run_failed", {"failure": {"code": "DEAD_END", "message": "x"}}),
    )
    assert (node.error, run.error) == ("DEAD_END", "DEAD_END")
    assert run.attributes["stepgraph.run.status"] == "failed"
    node, run = project(
        STARTED,
        superstep(),
        ("node_cancelled", {"activation_id": "1/a"}),
        ("run_cancelled", {"failure": {"code": "CANCELLED"}}),
    )
    assert (node.error, run.error) == ("", "")
    assert node.attributes["stepgraph.outcome"] == "cancelled"
    assert run.attributes["stepgraph.run.status"] == "cancelled"


def test_what_is_still_under_way_ends_with_the_run():
    attempt, node, _ = project(STARTED, superstep(), scheduled(LLM), DONE)
    assert attempt.attributes["stepgraph.outcome"] == "unreported"
    assert node.attributes["stepgraph.outcome"] == "unreported"
    assert attempt.end_ns == node.end_ns == 4 * S


def test_questions_are_events_of_the_node_that_asks():
    question = {"interrupt_id": "q", "activation_id": "1/a", "node_id": "a"}
    node, _ = project(
        STARTED,
        superstep(),
        ("interrupt_opened", {"question": question}),
        ("interrupt_answered", {"interrupt_id": "q"}),
        ("interrupt_closed", {"interrupt_id": "of nobody here"}),
        completed_node(),
        DONE,
    )
    assert [(event.name, event.time_ns) for event in node.events] == [
        ("interrupt.opened", 3 * S),
        ("interrupt.answered", 4 * S),
    ]


def test_a_question_that_nobody_needs_answered_any_more_is_closed():
    question = {"interrupt_id": "q", "activation_id": "1/a", "node_id": "a"}
    node, _ = project(
        STARTED,
        superstep(),
        ("interrupt_opened", {"question": question}),
        ("interrupt_closed", {"interrupt_id": "q"}),
        DONE,
    )
    assert [event.name for event in node.events] == ["interrupt.opened", "interrupt.closed"]


def test_an_inline_graph_has_no_name():
    run = project(("run_started", {"graph": {"digest": "d"}}), DONE)[-1]
    assert run.name == "run"
    assert "stepgraph.graph.name" not in run.attributes
    assert run.attributes["stepgraph.graph.digest"] == "d"


def test_tries_and_losses_are_attempts_of_one_node():
    task = {"task_id": "1/a/t0/e0", "attempt": 1}
    assigned = {"task_id": "1/a/t0/e0", "assignment": {"attempt": 2, "executor_id": "e2"}}
    spans = project(
        STARTED,
        superstep(),
        scheduled(LLM),
        ("task_lost", {**task, "reason": "TASK_LOSS_REASON_FORGOTTEN"}),
        ("task_assigned", assigned),
        ("task_failed", {**task, "attempt": 2, "failure": {"code": "X"}}),
        ("task_unclaimed", {"task_id": "1/b/t0/e0"}),
        DONE,
    )
    assert [span.error for span in spans[:2]] == ["FORGOTTEN", "X"]


def test_a_cancelled_task_has_a_span():
    cancelled = ("task_cancelled", {"task_id": "1/a/t0/e0", "attempt": 1})
    attempt, *_ = project(STARTED, superstep(), scheduled(LLM), cancelled, DONE)
    assert attempt.attributes["stepgraph.outcome"] == "cancelled"


def test_whoever_answers_is_linked_with_a_trace_of_their_own():
    question = {"interrupt_id": "q", "activation_id": "1/a", "node_id": "a"}
    node, _ = project(
        STARTED,
        superstep(),
        ("interrupt_opened", {"question": question}),
        ("interrupt_answered", {"interrupt_id": "q", "traceparent": CALLER}),
        completed_node(),
        DONE,
    )
    assert node.links == [CALLER]


def test_a_fork_has_spans_of_what_it_did_itself_and_is_linked_with_whoever_began_the_other_run():
    started = ("run_started", {**STARTED[1], "traceparent": CALLER})
    task = {"task_id": "1/b/t0/e0", "requirement": LLM, "assignment": {"attempt": 1}}
    result = {"task_id": "1/b/t0/e0", "result": REPLY}
    node, run = project(
        started,
        superstep(1, "a", "b"),
        ("task_scheduled", task),
        completed_node("1/a"),
        ("run_forked", {"run_id": "r2", "graph": {"name": "h", "version": 2, "digest": "e"}}),
        ("task_completed", result),
        completed_node("1/b"),
        DONE,
    )
    assert (node.name, node.start_ns) == ("node b", 5 * S)
    assert (run.name, run.start_ns, run.links) == ("run h", 5 * S, [CALLER])
    assert node.attributes["stepgraph.graph.version"] == 2
    assert run.attributes["stepgraph.usage.input_tokens"] == 5


def test_a_fork_into_an_inline_graph_has_no_name_any_more():
    run = project(STARTED, ("run_forked", {"graph": {"digest": "e"}}), DONE)[-1]
    assert "stepgraph.graph.name" not in run.attributes


def test_a_node_of_another_graph_has_no_kind():
    [node, _] = project(STARTED, superstep(1, "gone"), completed_node("1/gone"), DONE)
    assert "stepgraph.node.kind" not in node.attributes
