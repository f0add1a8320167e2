"""Who asks, and what a request is remembered by."""

from __future__ import annotations

from stepgraph_server.engine.callers import Caller, RequestKey


def test_a_caller_that_says_nothing_is_nobody_on_behalf_of_no_trace():
    assert Caller() == Caller(traceparent="", tracestate="", identity="", peer="")


def test_requests_are_the_same_by_what_they_are_remembered_by():
    one = RequestKey(method="StartRun", request_id="q", fingerprint="f")
    assert one == RequestKey(method="StartRun", request_id="q", fingerprint="f")
    assert one != RequestKey(method="CancelRun", request_id="q", fingerprint="f")
