from __future__ import annotations

from stepgraph.v1.executor_service_pb2 import Capability, Executor


def test_executors_are_listed_with_what_they_can_do(run, server) -> None:
    server.executors = [
        Executor(
            executor_id="e1",
            in_flight=2,
            max_in_flight=8,
            connected=True,
            labels={"gpu": "yes"},
            capabilities=[Capability(llm=Capability.Llm(models=["m", "n*"]))],
        ),
        Executor(executor_id="e2", in_flight=1, max_in_flight=1),
    ]
    lines = run("executors").out.splitlines()
    assert lines[1].split() == ["e1", "2/8", "gpu=yes", "models", "m,", "n*"]
    assert lines[2].split() == ["e2", "lost"]
    assert [each["executor_id"] for each in run("executors", "--json").json] == ["e1", "e2"]


def test_that_there_are_none_is_told(run) -> None:
    assert "no executors are connected" in run("executors").err


def test_one_executor_is_shown_with_how_busy_it_is(run, server) -> None:
    server.executors = [
        Executor(
            executor_id="e1",
            in_flight=2,
            max_in_flight=8,
            connected=True,
            client_name="x/1",
            capabilities=[Capability(agent=Capability.Agent(kind=each)) for each in "ab"],
        ),
        Executor(executor_id="e2", connected=True),
    ]
    out = run("executors", "get", "e1").out
    assert "busy      2/8  █████░░░░░░░░░░░░░░░\n" in out
    assert "can do    agent a\n          agent b\n" in out
    assert "can do    nothing" in run("executors", "get", "e2").out
    assert run("executors", "get", "e1", "--json").json["in_flight"] == 2
    ended = run("executors", "get", "e11")
    assert ended.code == 3
    assert "did you mean e1?" in ended.err
    assert "executors` lists them" in run("executors", "get", "qqq").err


def test_executors_are_chosen_by_what_they_can_do(run, server) -> None:
    server.executors = [
        Executor(executor_id=each, capabilities=[Capability(agent=Capability.Agent(kind=each))])
        for each in ("a", "b")
    ]
    assert run("executors", "--can", "agent b", "-o", "ids").out == "b\n"
    assert "no executors that can do tool x" in run("executors", "--can", "tool x").err
