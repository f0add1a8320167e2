"""Child runs as their parent decides about them; whole stories are in tests/scenarios, and crashes in engine/test_children.py."""

from __future__ import annotations

import hashlib

import pytest

from stepgraph.v1 import event_pb2, failure_pb2, graph_pb2, llm_pb2, run_pb2, value_pb2
from stepgraph_server.core.children import plan_of, resolved_graphs, run_started
from stepgraph_server.core.inputs import (
    ChildEnd,
    ChildRefused,
    ChildSeen,
    RunLimits,
    Start,
    StartChild,
    TellParent,
)
from stepgraph_server.core.instants import SECOND, Instant, Span, from_timestamp
from stepgraph_server.core.preparing import prepare
from tests.support.core_pieces import compiled, started, text, world
from tests.support.core_run import RUN_ID, START, PlayedRun

PARENT = compiled(
    "nodes: [{id: a, selector: {zone: east}, action: {subgraph: {graph: {reference: other}, output: {x: y}}}}]\n"
)
TASK = "1/a/t0/e0"


def seen(*, status: str = "RUNNING", end: ChildEnd | None = None) -> ChildSeen:
    number = run_pb2.RunStatus.Value(f"RUN_STATUS_{status}")
    graph = run_pb2.GraphVersion(name="other", version=1)
    return ChildSeen(task_id=TASK, run_id="c1", graph=graph, status=number, end=end)


def ended(failure: failure_pb2.Failure | None = None, **variables: value_pb2.Value) -> ChildSeen:
    usage = llm_pb2.Usage(input_tokens=3, output_tokens=4)
    end = ChildEnd(output=text("out"), variables=variables, failure=failure, usage=usage)
    return seen(status="FAILED" if failure else "COMPLETED", end=end)


def test_the_id_of_a_child_follows_from_the_full_id_of_its_task() -> None:
    run = started(PARENT)
    [scheduled] = [each.task_scheduled for each in run.events if each.HasField("task_scheduled")]
    expected = hashlib.sha256(f"{RUN_ID}/{TASK}".encode()).hexdigest()
    assert scheduled.child_run_id == expected
    assert not scheduled.HasField("requirement")


def test_it_is_wanted_with_the_event_that_schedules_it() -> None:
    run = PlayedRun(PARENT, world())
    begins = event_pb2.RunStarted(run_id=RUN_ID, rules_version=1, max_iterations=5)
    decision = run.happen(Start(started=begins))
    assert [type(each) for each in decision.commands] == [StartChild]


@pytest.mark.parametrize(
    ("own", "graphs", "parents", "expected"),
    [
        (None, None, None, None),
        (5, None, None, 5),
        (5, 3, None, 3),
        (5, 9, 4, 4),
        (None, None, 8, 8),
    ],
)
def test_the_earliest_of_all_time_limits_counts(
    own: int | None, graphs: int | None, parents: int | None, expected: int | None
) -> None:
    run = started(PARENT)
    state, task = run.state, run.state.tasks[TASK]
    state.time_limit_at = None if parents is None else Instant(START + parents * SECOND)
    child = prepare(state, task)
    child.time_limit = None if own is None else Span(own * SECOND)  # type: ignore[attr-defined]  # a Child
    plan = plan_of(state, task, child)  # type: ignore[arg-type]  # a Child
    limit = "" if graphs is None else f"time_limit: {graphs}s\n"
    walked = compiled(f"nodes: [{{id: a, assign: {{}}}}]\n{limit}")
    fact = run_started(
        plan, run_pb2.GraphVersion(name="other"), walked, START, traceparent="", tracestate=""
    )
    if expected is None:
        assert not fact.HasField("time_limit_time")
    else:
        assert from_timestamp(fact.time_limit_time) == START + expected * SECOND


def test_a_child_begins_below_its_parent_with_nothing_but_its_input() -> None:
    run = started(PARENT, token_limit=50)
    run.state.resolved["other"] = run_pb2.GraphVersion(digest="sha256:1")
    task = run.state.tasks[TASK]
    plan = plan_of(run.state, task, prepare(run.state, task))  # type: ignore[arg-type]  # a Child
    version = run_pb2.GraphVersion(name="other")
    fact = run_started(plan, version, PARENT, START, traceparent="t", tracestate="s")
    assert (fact.depth, fact.token_limit, fact.root_run_id) == (1, 50, run.state.root_run_id)
    assert (fact.parent.run_id, fact.parent.task_id) == (RUN_ID, TASK)
    assert fact.selector == {"zone": "east"}
    assert fact.max_iterations == PARENT.max_iterations
    assert [each.reference for each in fact.resolved_graphs] == ["other"]
    assert not fact.labels


def test_a_budget_that_others_have_used_up_is_not_no_budget() -> None:
    """0 would be no limit at all."""
    run = started(PARENT, token_limit=50)
    task = run.state.tasks[TASK]
    run.state.tokens.input = 60
    plan = plan_of(run.state, task, prepare(run.state, task))  # type: ignore[arg-type]  # a Child
    assert plan.token_limit == 1


def test_what_a_child_used_counts_however_it_ended() -> None:
    for said in (ended(y=text("1")), ended(), ended(failure_pb2.Failure(code="BROKEN"))):
        run = started(PARENT)
        run.happen(said)
        assert run.state.tokens.used == 7


def test_more_than_an_append_may_hold_is_a_failure_that_says_so() -> None:
    there = world()
    there.limits = RunLimits(max_bytes_per_decision=100)
    run = started(PARENT, there)
    run.happen(ended(y=text("x" * 200)))
    assert run.state.failure is not None
    assert run.state.failure.code == "PAYLOAD_TOO_LARGE"


def test_causes_of_deep_trees_are_cut() -> None:
    """A failure is bounded, however many runs it came through."""
    why = failure_pb2.Failure(code="BROKEN", message="at the leaf")
    for _ in range(16):
        run = started(PARENT)
        run.happen(ended(why))
        assert run.state.failure is not None
        why = run.state.failure
    depth = 0
    while why.causes:
        why, depth = why.causes[0], depth + 1
    assert depth == 10


def test_what_is_not_its_task_changes_nothing() -> None:
    run = started(PARENT)
    for task_id in ("1/a/t0/e7", "9/z/t0/e0"):
        decision = run.happen(
            ChildRefused(task_id=task_id, failure=failure_pb2.Failure(code="BROKEN"))
        )
        assert not decision.events


def test_a_root_tells_nobody() -> None:
    run = started(compiled("nodes: [{id: a, assign: {}}]\n"))
    assert run.state.final
    parent = run_pb2.RunParent(run_id="r0", task_id="1/sub/t0/e0")
    child = PlayedRun(compiled("nodes: [{id: a, assign: {}}]\n"), world())
    begins = event_pb2.RunStarted(run_id=RUN_ID, rules_version=1, max_iterations=5, parent=parent)
    [told] = child.happen(Start(started=begins)).commands
    assert isinstance(told, TellParent)
    assert told.parent_run_id == "r0"
    assert told.seen.end is not None


def test_references_stand_in_order() -> None:
    graphs = {name: run_pb2.GraphVersion(name=name) for name in ("b", "a")}
    assert [each.reference for each in resolved_graphs(graphs)] == ["a", "b"]
    assert graph_pb2.GraphRef().WhichOneof("kind") is None
