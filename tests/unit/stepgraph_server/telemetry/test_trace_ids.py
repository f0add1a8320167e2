"""The ids of traces and spans: the same whenever they are asked for, and of their own."""

from __future__ import annotations

import pytest

from stepgraph_server.telemetry.trace_ids import activation_of, node_of
from tests.support.otlp_events import CALLER, trace


def test_ids_are_the_same_after_a_restart():
    one, other = trace(), trace()
    assert one.trace_id == other.trace_id
    assert one.run_span() == other.run_span()
    assert one.node_span("1/a") == other.node_span("1/a")
    assert one.traceparent("1/a/t0/e0", 2) == other.traceparent("1/a/t0/e0", 2)


def test_every_span_of_a_run_has_an_id_of_its_own():
    it = trace()
    ids = {
        it.run_span(),
        it.node_span("1/a"),
        it.node_span("2/a"),
        *(
            it.attempt_span(task, attempt)
            for task in ("1/a/t0/e0", "1/a/t0/e1")
            for attempt in (1, 2)
        ),
    }
    assert len(ids) == 7
    assert {len(span_id) for span_id in ids} == {16}


@pytest.mark.parametrize("other", [{"run_id": "r2"}, {"namespace": "n"}, {"started_at": 8}])
@pytest.mark.parametrize("caller", ["", CALLER])
def test_runs_share_no_span_even_in_one_trace(caller, other):
    assert trace(caller).run_span() != trace(caller, **other).run_span()


def test_a_run_continues_its_callers_trace():
    it = trace(CALLER, tracestate="a=b")
    assert it.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert it.parent_id == "00f067aa0ba902b7"
    assert it.tracestate == "a=b"
    assert it.traceparent("t", 1) == f"00-{it.trace_id}-{it.attempt_span('t', 1)}-01"


def test_a_child_run_continues_under_the_node_that_runs_it():
    """In one trace, and recorded if its parent is."""
    it = trace(CALLER)
    child = trace(it.node_traceparent("1/sub"), run_id="child")
    assert (child.trace_id, child.parent_id) == (it.trace_id, it.node_span("1/sub"))
    assert child.is_sampled
    assert not trace(trace(CALLER[:-2] + "00").node_traceparent("1/sub"), run_id="c").is_sampled
    assert trace(CALLER, sampler=None).node_traceparent("1/sub") == CALLER


def test_a_run_without_one_begins_its_own():
    it = trace()
    assert len(it.trace_id) == 32
    assert it.parent_id == ""


def test_what_is_not_sampled_says_so_to_executors():
    it = trace(CALLER[:-2] + "00")
    assert not it.is_sampled
    assert it.traceparent("t", 1) == f"00-{it.trace_id}-{it.attempt_span('t', 1)}-00"


def test_whoever_records_nothing_passes_on_what_came():
    it = trace(CALLER, sampler=None)
    assert not it.is_sampled
    assert it.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"  # for logs
    assert it.traceparent("t", 1) == CALLER
    assert trace(sampler=None).traceparent("t", 1) == ""


def test_a_context_of_a_later_version_is_read_as_far_as_it_is_known():
    it = trace("cc" + CALLER[2:] + "-what-comes-later")
    assert it.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert it.is_sampled


def test_a_task_names_its_activation_and_that_its_node():
    assert activation_of("12/think.twice/t0/e3") == "12/think.twice"
    assert node_of("12/think.twice") == "think.twice"


def test_what_is_no_context_counts_as_none():
    it = trace("something else")
    assert it.parent_id == ""
    assert len(it.trace_id) == 32
