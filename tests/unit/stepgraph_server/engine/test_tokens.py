"""One token answers one question of a namespace, however close together two runs want it."""

from __future__ import annotations

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import interrupt_pb2, task_pb2
from stepgraph_server.core.errors import Refused
from stepgraph_server.core.instants import Instant
from stepgraph_server.engine.tokens import MAX_REMEMBERED, Tokens, external_token
from stepgraph_server.storage.errors import JournalUnavailable
from stepgraph_server.storage.records import QuestionRow, RunKey
from tests.support.engine_executor import Executor
from tests.support.engine_rig import NAMESPACE, rig
from tests.support.engine_time import in_virtual_time
from tests.support.graphs import graph

GONE = ("the file", "it is gone", "Wait")
STEP = graph({"a": {"action": {"step": {"program": "p"}}}})


def _wait_for(token: str) -> task_pb2.TaskResult:
    result = task_pb2.TaskResult()
    result.step.transition.suspend.reason.external.token = token
    return result


def _asks(task: task_pb2.Task) -> pb.AttemptOutcome:
    """Wait for a token first, then end with what came."""
    outcome = pb.AttemptOutcome(task_id=task.task_id, attempt=task.attempt)
    if task.input.step.turn == 0:
        outcome.succeeded.CopyFrom(_wait_for("t"))
    else:
        values = task.input.step.results[0].answer.values
        outcome.succeeded.step.transition.done.value.CopyFrom(values[0])
    return outcome


def _hosts() -> list[pb.Capability]:
    return [pb.Capability(step=pb.Capability.Step(program="p"))]


def test_only_a_reply_that_waits_for_a_token_has_one() -> None:
    assert external_token(_wait_for("t")) == "t"
    assert external_token(task_pb2.TaskResult()) == ""


@in_virtual_time
async def test_of_two_runs_that_want_one_token_at_once_one_gets_it():
    async with rig() as it:
        executor = await Executor(it, capabilities=_hosts()).connect()
        await it.start(STEP, "r1")
        await it.start(STEP, "r2")
        await it.settle()
        executor.report(*(_asks(task) for task in list(executor.running.values())))
        await it.settle()
        assert sorted([it.status("r1"), it.status("r2")]) == ["FAILED", "SUSPENDED"]
        failed = "r1" if it.status("r1") == "FAILED" else "r2"
        assert it.store.events(failed)[-1].run_failed.failure.code == "TOKEN_TAKEN"


@in_virtual_time
async def test_a_run_is_answered_by_its_token_and_the_token_is_free_again():
    async with rig() as it:
        await Executor(it, capabilities=_hosts(), script=_asks).connect()
        for run_id in ("r1", "r2"):
            await it.start(STEP, run_id)
            assert await it.settle(run_id) == "SUSPENDED"
            found = await it.store.interrupts.get_by_token(NAMESPACE, "t")
            assert found is not None
            answer = interrupt_pb2.InterruptAnswer()
            answer.reply.value.text = "paid"
            await it.engine.answer(NAMESPACE, found[0].interrupt_id, answer, "anna", None)
            assert await it.settle(run_id) == "COMPLETED"
            assert it.store.events(run_id)[-1].run_completed.result.output.text == "paid"


class _Questions:
    """A store of questions that can't be read at first."""

    def __init__(self, *open_for: RunKey) -> None:
        self.unreadable = 1
        self.open_for = open_for

    async def get_by_token(self, namespace: str, token: str) -> tuple[QuestionRow, RunKey] | None:
        del namespace
        if self.unreadable:
            self.unreadable -= 1
            raise JournalUnavailable(*GONE)
        row = QuestionRow(
            interrupt_id="q",
            status=interrupt_pb2.INTERRUPT_STATUS_OPEN,
            open_time=Instant(1),
            external_token=token,
            question=b"",
        )
        return (row, self.open_for[0]) if self.open_for else None


class _Runner:
    """A runner that does not know the run any more."""

    async def settled(self, key: RunKey) -> None:
        raise Refused("RUN_NOT_FOUND", key.run_id)


@in_virtual_time
async def test_a_store_that_can_not_be_read_is_waited_for():
    mine, other = RunKey("n", "r1"), RunKey("n", "r2")
    assert await Tokens(_Questions(other)).is_taken(_Runner(), mine, "t")
    # Of its own questions a run knows itself.
    assert not await Tokens(_Questions(mine)).is_taken(_Runner(), mine, "t")


@in_virtual_time
async def test_what_is_remembered_is_bounded():
    tokens = Tokens(_Questions())
    for number in range(MAX_REMEMBERED + 5):
        assert not await tokens.is_taken(_Runner(), RunKey("n", "r1"), f"t{number}")
    assert len(tokens._lately) == MAX_REMEMBERED
    assert not await tokens.is_taken(_Runner(), RunKey("n", "r2"), f"t{MAX_REMEMBERED}")
