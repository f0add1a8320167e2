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
