"""What is stored, and how a row is shown."""

from __future__ import annotations

from stepgraph.v1 import failure_pb2, run_pb2, state_pb2
from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.records import RunProgress, RunRecord
from tests.contracts.storing import COMPLETED, RUNNING, creation, ending, key


def record(**fields: object) -> RunRecord:
    values: dict[str, object] = {
        "key": key(),
        "creation": creation(),
        "progress": RunProgress(status=RUNNING, last_sequence=4),
    }
    return RunRecord(**(values | fields))


def test_a_run_that_lives_is_shown_without_an_end() -> None:
    """What there is not is absent, and not empty."""
    run = record().to_run()
    for name in ("end_time", "result", "failure", "parent", "origin", "next_due_time"):
        assert not run.HasField(name)
    assert (run.run_id, run.namespace, run.root_run_id) == ("r1", "default", "r1")
    assert (run.graph.name, run.graph.version, run.graph.digest) == ("g", 1, "sha256:aa")
    assert run.status == run_pb2.RUN_STATUS_RUNNING
    assert run.create_time.ToMicroseconds() == 1_000


def test_a_run_is_shown_with_all_that_its_row_has() -> None:
    """Times, counts, usage, parent and origin."""
    made = creation(
        labels={"a": "b"},
        parent=run_pb2.RunParent(run_id="p", task_id="t").SerializeToString(),
        parent_run_id="p",
        root_run_id="root",
        origin=run_pb2.RunOrigin(run_id="o", sequence=3).SerializeToString(),
    )
    progress = RunProgress(
        status=RUNNING,
        last_sequence=9,
        iterations=2,
        open_interrupts=1,
        next_due=Instant(5_000_001),
        input_tokens=1,
        output_tokens=2,
        cached_input_tokens=3,
        reasoning_tokens=4,
    )
    run = record(creation=made, progress=progress, quarantined=True).to_run()
    assert dict(run.labels) == {"a": "b"}
    assert (run.parent.task_id, run.origin.sequence, run.root_run_id) == ("t", 3, "root")
    assert (run.last_sequence, run.iterations, run.open_interrupts) == (9, 2, 1)
    assert run.next_due_time.ToMicroseconds() == 5_000_001
    usage = run.usage
    assert (usage.input_tokens, usage.output_tokens) == (1, 2)
    assert (usage.cached_input_tokens, usage.reasoning_tokens) == (3, 4)
    assert run.quarantined


def test_a_run_that_ended_has_a_result() -> None:
    """Also an empty one; a failure only if there was one."""
    progress = RunProgress(status=COMPLETED, last_sequence=9)
    ended = record(progress=progress, ending=ending())
    run = ended.to_run()
    assert run.HasField("result")
    assert not run.HasField("failure")
    assert run.end_time.ToMicroseconds() == 9_000
    failure = failure_pb2.Failure(code="X").SerializeToString()
    result = state_pb2.GraphExecutionResult(iterations=7).SerializeToString()
    run = record(progress=progress, ending=ending(failure=failure, result=result)).to_run()
    assert (run.failure.code, run.result.iterations) == ("X", 7)


def test_a_status_of_a_newer_server_is_shown_as_it_is() -> None:
    """Enums are open."""
    assert record(progress=RunProgress(status=99, last_sequence=1)).to_run().status == 99


def test_the_last_three_statuses_are_final() -> None:
    """Nothing can follow."""
    finals = [
        status
        for status in run_pb2.RunStatus.values()
        if record(progress=RunProgress(status=status, last_sequence=1)).is_final
    ]
    assert [run_pb2.RunStatus.Name(status) for status in finals] == [
        "RUN_STATUS_COMPLETED",
        "RUN_STATUS_FAILED",
        "RUN_STATUS_CANCELLED",
    ]
