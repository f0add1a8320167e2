"""Tasks that wait take turns."""

from __future__ import annotations

from types import SimpleNamespace

from stepgraph_server.engine.waiting import WaitingTasks
from stepgraph_server.storage.records import RunKey

A, B = RunKey("default", "a"), RunKey("default", "b")
ELSEWHERE = RunKey("elsewhere", "a")


def task(name: str, *, key: tuple[str, ...] = ("agent", "worker"), queued_at: int = 0):
    return SimpleNamespace(id=name, key=key, selector=(), queued_at=queued_at)


def everything(*_: object) -> bool:
    return True


def filled() -> WaitingTasks:
    waiting = WaitingTasks()
    for number in range(3):
        waiting.add(A, task(f"a{number}", queued_at=number + 5))
    waiting.add(B, task("b0", queued_at=2))
    return waiting


def test_runs_take_turns_each_with_its_oldest_task_first():
    waiting = filled()
    (queue,) = waiting.queues()
    taken = [name for _, name in queue.take(10, everything)]
    assert taken == ["a0", "b0", "a1", "a2"]
    assert len(waiting) == 0
    assert waiting.queues() == []


def test_no_more_is_taken_than_there_is_room():
    waiting = filled()
    (queue,) = waiting.queues()
    assert [name for _, name in queue.take(0, everything)] == []
    assert [name for _, name in queue.take(1, everything)] == ["a0"]
    # The other run is next, because the first one had its turn.
    assert [name for _, name in queue.take(1, everything)] == ["b0"]
    assert queue.size == 2


def test_what_does_not_wait_any_more_is_passed_over_and_takes_no_turn():
    waiting = filled()
    (queue,) = waiting.queues()
    taken = [name for _, name in queue.take(2, lambda _, name: name not in ("a0", "b0"))]
    assert taken == ["a1", "a2"]
    assert queue.size == 0


def test_since_when_something_waits_is_known():
    waiting = filled()
    (queue,) = waiting.queues()
    assert queue.oldest() == 2
    waiting.forget(B)
    assert queue.oldest() == 5
    waiting.forget(A)
    assert queue.oldest() is None


def test_a_run_is_forgotten_wherever_it_waits():
    waiting = filled()
    waiting.add(A, task("other", key=("agent", "other")))
    waiting.forget(A)
    waiting.forget(RunKey("default", "unknown"))
    assert len(waiting) == 1
    assert waiting.has("default", ("agent", "worker"), ())
    assert not waiting.has("default", ("agent", "other"), ())


def test_the_queue_that_was_served_last_comes_last():
    waiting = filled()
    waiting.add(A, task("other", key=("agent", "other")))
    first, second = waiting.queues()
    waiting.served(first)
    assert waiting.queues() == [second, first]


def test_namespaces_wait_by_themselves():
    waiting = WaitingTasks()
    assert not waiting.has("default", ("agent", "worker"), ())
    waiting.add(ELSEWHERE, task("a0"))
    assert waiting.of_namespace("elsewhere")
    assert not waiting.of_namespace("default")
    assert not waiting.has("default", ("agent", "worker"), ())
