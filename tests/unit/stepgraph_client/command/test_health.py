"""`stepgraph health`: its exit code is what a probe needs to know."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def probed():
    """Health as a server answers it, with the address."""
    servicer = health.HealthServicer()
    server = grpc.server(ThreadPoolExecutor(1))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    server.stop(0).wait()


def test_a_server_that_is_ready_is_healthy(run, probed) -> None:
    servicer, address = probed
    servicer.set("readiness", SERVING)
    ended = run("health", address=address)
    assert (ended.code, ended.out) == (0, f"{address} is ready\n")


def test_a_server_that_can_not_write_is_not_ready_but_alive(run, probed) -> None:
    servicer, address = probed
    servicer.set("readiness", NOT_SERVING)
    servicer.set("liveness", SERVING)
    ended = run("health", address=address)
    assert ended.code == 3
    assert "is not ready" in ended.err
    assert run("health", "--live", address=address).out == f"{address} is alive\n"


def test_that_nobody_answers_is_another_exit_code(run, probed) -> None:
    ended = run("health", "--timeout", "500ms", address="127.0.0.1:1")
    assert ended.code == 4
    assert "can't be reached" in ended.err


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_told(run) -> None:
    """Whoever listens and says nothing is away, as far as a probe is concerned."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ended = run("health", "--timeout", "300ms", address=f"127.0.0.1:{silent.getsockname()[1]}")
    assert ended.code == 4


def test_a_server_of_another_kind_is_told_from_one_that_is_away(run, server) -> None:
    ended = run("health")
    assert ended.code == 3
    assert "is it a stepgraph server?" in ended.err
