"""What metadata says of the caller is taken if it looks right, and ignored otherwise."""

from __future__ import annotations

import pytest

from stepgraph.v1 import run_service_pb2
from stepgraph_server.api.callers import caller_of, request_key
from stepgraph_server.engine.callers import Caller

TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class FakeContext:
    def __init__(self, *metadata):
        self.metadata = metadata

    def invocation_metadata(self):
        return self.metadata or None

    def peer(self):
        return "ipv4:127.0.0.1:5"


def test_a_caller_has_its_peer_and_its_trace():
    context = FakeContext(("traceparent", TRACEPARENT), ("tracestate", "a=b"), ("x-bin", b"\xff"))

    assert caller_of(context) == Caller(
        traceparent=TRACEPARENT, tracestate="a=b", peer="ipv4:127.0.0.1:5"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-0-0-01",
        TRACEPARENT.upper(),
        "ff" + TRACEPARENT[2:],
        TRACEPARENT.replace("00f067aa0ba902b7", "0" * 16),
        TRACEPARENT.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        TRACEPARENT + "\n",
    ],
)
def test_a_trace_that_is_none_is_ignored_with_its_state(text):
    context = FakeContext(("traceparent", text), ("tracestate", "a=b"))

    assert caller_of(context) == Caller(peer="ipv4:127.0.0.1:5")


def test_a_state_that_is_too_long_is_left_out():
    context = FakeContext(("traceparent", TRACEPARENT), ("tracestate", "x" * 513))

    assert caller_of(context).tracestate == ""


def test_no_metadata_is_fine():
    assert caller_of(FakeContext()) == Caller(peer="ipv4:127.0.0.1:5")


def test_a_request_is_remembered_by_method_id_and_content():
    key = request_key("CancelRun", run_service_pb2.CancelRunRequest(run_id="r", request_id="a"))
    same = request_key("CancelRun", run_service_pb2.CancelRunRequest(run_id="r", request_id="b"))

    assert (key.method, key.request_id) == ("CancelRun", "a")
    assert key.fingerprint == same.fingerprint


def test_a_request_without_an_id_is_not_remembered():
    assert request_key("CancelRun", run_service_pb2.CancelRunRequest(run_id="r")) is None
