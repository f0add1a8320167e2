from __future__ import annotations

import inspect
import threading

import pytest

from stepgraph.v1.event_pb2 import RunPaused
from stepgraph.v1.executor_service_pb2 import Executor
from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph_client import Client as AsyncClient
from stepgraph_client import RunHandle as AsyncRunHandle
from stepgraph_client.answers import proceed
from stepgraph_client.calls import Patience
from stepgraph_client.errors import NotFound
from stepgraph_client.graphs import Graph
from stepgraph_client.sync import Client, RunHandle
from tests.support.fake_server import run_event

HASTY = Patience(max_tries=3, first_delay_s=0.001, max_delay_s=0.01)


@pytest.fixture
def plain(server):
    with Client(server.address, patience=HASTY, watch_patience=HASTY) as client:
        yield client


def public(of: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(of) if not name.startswith("_")}


def test_both_clients_have_the_same_methods() -> None:
    assert public(AsyncClient) == public(Client)
    assert public(AsyncRunHandle) | {"run"} == public(RunHandle)


def test_both_clients_take_the_same_arguments() -> None:
    for name in public(Client):
        ours = inspect.signature(getattr(Client, name)).parameters
        theirs = inspect.signature(getattr(AsyncClient, name)).parameters
        assert list(ours) == list(theirs), name
        assert [each.default for each in ours.values()] == [
            each.default for each in theirs.values()
        ]


def test_a_run_is_started_watched_and_asked_for_its_result(plain, server) -> None:
    run = plain.start_run("react", input="hi")
    assert run.result() == "done"
    assert [event.sequence for event in run.events()] == [1]
    assert (run.run_id, run.run.run_id) == ("run-1", "run-1")
    assert run.wait().run_id == "run-1"
    assert plain.run("run-1").state().sequence == 0


def test_everything_else_is_there_too(plain, server) -> None:
    server.add_run("r", run_event(run_paused=RunPaused()))
    server.executors = [Executor(executor_id="e")]
    server.questions["q"] = Interrupt(
        interrupt_id="q", status=InterruptStatus.INTERRUPT_STATUS_OPEN
    )
    g = Graph("g")
    g.assign("a")
    assert plain.register_graph(g).created
    assert not plain.validate_graph(g).problems
    assert plain.get_graph("g").version.version == 1
    assert plain.render_graph("g") == "flowchart TD"
    assert [each.name for each in plain.list_graphs()] == ["g"]
    assert [each.version for each in plain.list_graph_versions("g")] == [1]
    assert [each.run_id for each in plain.list_runs()] == ["r"]
    assert [each.executor_id for each in plain.executors()] == ["e"]
    assert [each.interrupt_id for each in plain.interrupts()] == ["q"]
    assert plain.get_interrupt("q").interrupt_id == "q"
    assert plain.answer("q", proceed()).answered_by
    server.questions["t"] = server.questions["q"]
    assert plain.answer_external("t", proceed()).answered_by
    assert [each.sequence for each in plain.watch("r", history_only=True)] == [1]
    assert list(plain.watch_runs()) == []
    assert plain.watch_position() == ""
    assert plain.state("r").sequence == 0
    assert plain.explain("r").waits
    assert plain.get_run("r").run_id == "r"
    assert plain.pause("r").run_id == "r"
    assert plain.unpause("r").run_id == "r"
    assert plain.signal("r", "go", "now").run_id == "r"
    assert plain.cancel("r").run_id == "r"
    assert plain.run("r").cancel().run_id == "r"
    assert plain.fork("r").run_id == "r-fork"
    assert plain.retry("r").run_id == "r-retry"
    server.runs["r"].complete()
    assert [each.run_id for each in plain.watch_tree("r")] == ["r", "r"]
    plain.delete("r")


def test_values_go_and_come(plain) -> None:
    reference = plain.put_value("x")
    assert plain.get_value(reference) == "x"
    assert plain.read_value(reference.stored.digest) == b"x"
    assert plain.as_value(3).json == "3"


def test_exceptions_come_through(plain) -> None:
    with pytest.raises(NotFound):
        plain.get_run("nope")


def test_an_iterator_may_be_left_early(plain, server) -> None:
    server.add_run("r", run_event(run_paused=RunPaused()))
    events = plain.watch("r")
    assert next(events).sequence == 1
    events.close()


def test_a_client_that_is_closed_leaves_no_thread(server) -> None:
    before = threading.active_count()
    with Client(server.address):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
