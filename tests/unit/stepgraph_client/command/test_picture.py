from __future__ import annotations

from collections import deque

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1 import event_pb2 as pb
from stepgraph.v1.run_pb2 import GraphVersion
from stepgraph.v1.task_pb2 import Requirement, TaskAssignment
from stepgraph_client.command.picture import MAX_PATH, RunPicture, path_text
from tests.support.fake_server import run_event, unknown_event

TASK = "2/think/t0/e0"
STARTED = pb.RunStarted(run_id="r", graph=GraphVersion(name="g", version=1))


def at(second: int, **kind):
    return run_event(time=Timestamp(seconds=second), **kind)


def picture(*events) -> RunPicture:
    made = RunPicture()
    for event in events:
        made.take(event)
    return made


def scheduled(second: int = 5, executor_id: str = "") -> pb.RunEvent:
    task = pb.TaskScheduled(task_id=TASK, requirement=Requirement(llm=Requirement.Llm(model="m")))
    if executor_id:
        task.assignment.executor_id = executor_id
    return at(second, task_scheduled=task)


def test_a_run_that_goes_on_shows_its_path_and_since_when() -> None:
    made = picture(
        at(1, run_started=STARTED),
        at(2, superstep_started=pb.SuperstepStarted(superstep=1, nodes=["a"])),
        at(3, superstep_started=pb.SuperstepStarted(superstep=2, nodes=["b", "c"])),
        unknown_event(),
    )
    assert (made.run_id, made.graph, made.superstep, made.start_s) == ("r", "g@1", 2, 1.0)
    assert list(made.path) == ["a", "b, c"]
    assert not made.is_over


def test_a_task_that_no_executor_has_says_why() -> None:
    """A sleep, a child run, and a call that a person has to approve first."""
    kinds = (
        pb.TaskScheduled(task_id="1/a/t0/e0", due_time=Timestamp(seconds=60)),
        pb.TaskScheduled(task_id="1/a/t0/e1", child_run_id="c0ffee"),
        pb.TaskScheduled(task_id="1/a/t0/e2"),
    )
    made = picture(*(at(1, task_scheduled=each) for each in kinds))
    assert [each.trouble for each in made.tasks.values()] == [
        "over at 1970-01-01 00:01:00Z",
        "is run c0ffee",
        "",
    ]
    opened = pb.InterruptOpened()
    opened.question.interrupt_id, opened.question.task_id = "q", "1/a/t0/e2"
    made.take(at(2, interrupt_opened=opened))
    assert made.tasks["1/a/t0/e2"].trouble == "waits for approval"
    made.take(at(3, interrupt_answered=pb.InterruptAnswered(interrupt_id="q")))
    assert made.tasks["1/a/t0/e2"].trouble == ""


def test_a_task_is_shown_as_it_stands() -> None:
    made = picture(scheduled())
    assert (made.tasks[TASK].name, made.tasks[TASK].label) == ("think", "model m")
    assert made.tasks[TASK].since_s == 5
    states = []
    for event in (
        at(6, task_unclaimed=pb.TaskUnclaimed(task_id=TASK)),
        at(
            7,
            task_assigned=pb.TaskAssigned(task_id=TASK, assignment=TaskAssignment(executor_id="e")),
        ),
        at(8, task_lost=pb.TaskLost(task_id=TASK)),
        at(
            9,
            task_failed=pb.TaskFailed(task_id=TASK, tries=1, retry_time=Timestamp(seconds=12)),
        ),
    ):
        made.take(event)
        task = made.tasks[TASK]
        states.append((task.since_s, task.executor_id, task.trouble))
    assert states == [
        (6, "", "no executor offers something that this version does not know"),
        (7, "e", ""),
        (8, "", "its executor was lost"),
        (9, "", "failed; try 2 follows"),
    ]


@pytest.mark.parametrize(
    "end",
    [
        {"task_completed": pb.TaskCompleted(task_id=TASK)},
        {"task_failed": pb.TaskFailed(task_id=TASK)},
        {"task_cancelled": pb.TaskCancelled(task_id=TASK)},
        {"run_completed": pb.RunCompleted()},
    ],
    ids=lambda end: next(iter(end)),
)
def test_what_is_over_is_not_kept(end) -> None:
    assert picture(scheduled(executor_id="e"), at(9, **end)).tasks == {}


def test_tokens_are_counted() -> None:
    done = pb.TaskCompleted(task_id=TASK)
    done.result.llm.usage.input_tokens = 3
    done.result.llm.usage.output_tokens = 4
    assert picture(at(1, task_completed=done), at(2, task_completed=done)).tokens == 14


def test_a_run_that_waits_for_signals_alone_says_so() -> None:
    opened = pb.InterruptOpened()
    opened.question.interrupt_id = "q"
    opened.question.reason.signal.name = "paid"
    assert picture(at(1, interrupt_opened=opened)).standing == "waits for a signal"


def test_a_run_that_waits_for_people_alone_says_so() -> None:
    opened = pb.InterruptOpened()
    opened.question.interrupt_id = "q"
    made = picture(at(1, interrupt_opened=opened))
    assert made.standing == "waits for an answer"
    made.take(scheduled())
    assert made.standing == "running"
    for kind in ("interrupt_answered", "interrupt_closed"):
        ended = at(2)
        getattr(ended, kind).interrupt_id = "q"
        assert not picture(at(1, interrupt_opened=opened), ended).questions


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("run_paused", "paused"),
        ("run_unpaused", "running"),
        ("run_stopping", "stopping"),
        ("run_completed", "completed"),
        ("run_failed", "failed"),
        ("run_cancelled", "cancelled"),
    ],
)
def test_a_run_has_its_status(kind, status) -> None:
    event = at(1)
    getattr(event, kind).SetInParent()
    made = picture(event)
    assert made.standing == status
    assert made.is_over is (status in {"completed", "failed", "cancelled"})


def test_a_fork_goes_by_its_own_name_and_time() -> None:
    forked = pb.RunForked(run_id="f")
    made = picture(at(1, run_started=STARTED), at(2, run_forked=forked))
    assert (made.run_id, made.start_s) == ("f", 2.0)


def test_a_fork_takes_nothing_over_that_is_not_so_any_more() -> None:
    """Questions come again under new ids, tasks go out again, and it is not paused; its graph may be another one."""
    opened = pb.InterruptOpened()
    opened.question.interrupt_id = "q"
    forked = pb.RunForked(run_id="f", graph={"name": "g", "version": 2})
    made = picture(
        at(1, run_started=STARTED),
        scheduled(),
        at(2, interrupt_opened=opened),
        at(3, run_paused=pb.RunPaused()),
        at(4, run_forked=forked),
    )
    assert (made.standing, made.graph, made.questions) == ("running", "g@2", {})
    (task,) = made.tasks.values()
    assert (task.executor_id, task.since_s) == ("", 4.0)


def test_of_a_long_path_the_end_is_kept_and_shown() -> None:
    made = picture(
        *(at(1, superstep_started=pb.SuperstepStarted(nodes=[f"n{n}"])) for n in range(100))
    )
    assert len(made.path) == MAX_PATH
    assert path_text(made.path, 20) == "… → n97 → n98 → n99"
    assert path_text(deque(["a", "b"]), 20) == "a → b"
    assert path_text(deque(["x" * 50]), 20) == "x" * 15 + "…"
    assert path_text(deque(), 20) == ""
