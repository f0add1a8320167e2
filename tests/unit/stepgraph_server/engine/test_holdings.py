"""Slots belong to sessions, attempts to instances."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stepgraph.v1 import event_pb2, executor_service_pb2
from stepgraph_server.core.instants import SECOND, Span
from stepgraph_server.engine.holdings import Holdings
from stepgraph_server.executors.registry import Registry
from stepgraph_server.executors.seats import LostInstance
from stepgraph_server.storage.records import RunKey
from tests.support.hellos import agent, hello, received
from tests.support.outlets import RecordingOutlet

R1 = RunKey("default", "r1")
TASK = SimpleNamespace(id="1/a/t0/e0", key=("agent", "worker"), selector=(), prefers="", attempt=0)
FULL_ID = "r1/1/a/t0/e0"


class Place:
    """A registry with what is held in it."""

    def __init__(self) -> None:
        self.registry = Registry(Span(30 * SECOND), lambda _: None)
        self.holdings = Holdings(self.registry)

    def join(self, executor_id="e1", *, token=b"token of a test.", namespace="default"):
        greeting = hello(
            executor_id, token=token, namespace=namespace, capabilities=[agent("worker")]
        )
        seat = self.registry.join(received(greeting), RecordingOutlet(), 0).seat
        self.registry.open(seat, 0)
        return seat


@pytest.fixture
def place() -> Place:
    return Place()


def assigned(seat, number: int = 1, task_id: str = TASK.id) -> tuple[object, tuple[str, int]]:
    task = SimpleNamespace(instance=seat.instance, executor_id=seat.executor_id)
    return task, (f"r1/{task_id}", number)


def lost(seat) -> LostInstance:
    return LostInstance(
        namespace=seat.namespace,
        executor_id=seat.executor_id,
        instance=seat.instance,
        reason=event_pb2.TASK_LOSS_REASON_FORGOTTEN,
    )


def test_a_slot_is_given_back_once(place):
    assert place.holdings.reserve(R1, TASK) is None
    seat = place.join()
    assert place.holdings.reserve(R1, TASK) is seat
    assert place.holdings.has_slot(seat, (FULL_ID, 1))
    assert (seat.in_flight, len(place.holdings)) == (1, 1)
    place.holdings.free(seat, (FULL_ID, 2))
    assert seat.in_flight == 1
    for _ in range(2):
        place.holdings.free(seat, (FULL_ID, 1))
        assert (seat.in_flight, len(place.holdings)) == (0, 0)
    other = place.join("e2")
    place.holdings.free(other, (FULL_ID, 1))
    assert not place.holdings.has_slot(other, (FULL_ID, 1))


def test_a_new_session_begins_with_what_is_held_and_ends_the_slots_of_the_older(place):
    old, stranger = place.join(), place.join("e2", token=b"another process.")
    elsewhere = place.join(namespace="elsewhere")
    for seat in (old, stranger, elsewhere):
        place.holdings.seated(seat, [(FULL_ID, 1)])
    new = place.join()
    place.holdings.seated(new, [(FULL_ID, 3)])
    assert not place.holdings.has_slot(old, (FULL_ID, 1))
    assert place.holdings.has_slot(new, (FULL_ID, 3))
    assert place.holdings.has_slot(stranger, (FULL_ID, 1))
    assert place.holdings.has_slot(elsewhere, (FULL_ID, 1))


def test_an_attempt_is_an_instances_until_it_is_over(place):
    seat, other = place.join(), place.join("e2", token=b"another process.")
    task, attempt = assigned(seat)
    assert not place.holdings.has(seat, attempt)
    assert place.holdings.of_seat(seat) == []
    place.holdings.over("default", seat.instance, attempt)
    for _ in range(2):
        place.holdings.assigned("default", task, attempt)
    assert place.holdings.has(seat, attempt)
    assert not place.holdings.has(other, attempt)
    assert place.holdings.of_seat(seat) == [attempt]
    for _ in range(2):
        place.holdings.over("default", seat.instance, attempt)
        assert not place.holdings.has(seat, attempt)


def test_a_lost_instance_takes_its_own_with_it(place):
    # One process with two executors, and the same token for both.
    one, two = place.join("e1"), place.join("e2")
    elsewhere = place.join("e1", namespace="elsewhere")
    first, second = assigned(one, 1), assigned(two, 2)
    far = assigned(elsewhere)
    for seat, (task, attempt) in ((one, first), (two, second), (elsewhere, far)):
        place.holdings.seated(seat, [(FULL_ID, attempt[1])])
        place.holdings.assigned(seat.namespace, task, attempt)
    assert place.holdings.lose(lost(one)) == [first[1]]
    assert place.holdings.lose(lost(one)) == []
    assert not place.holdings.has_slot(one, (FULL_ID, 1))
    assert place.holdings.has_slot(two, (FULL_ID, 2))
    assert place.holdings.of_seat(two) == [second[1]]
    assert place.holdings.of_seat(elsewhere) == [far[1]]
    assert place.holdings.lose(lost(two)) == [second[1]]


def test_of_a_run_that_is_forgotten_only_what_executors_do_keeps_its_slots(place):
    seat, elsewhere = place.join(), place.join(namespace="elsewhere")
    place.holdings.reserve(R1, TASK)
    place.holdings.reserve(R1, SimpleNamespace(**{**vars(TASK), "id": "1/b/t0/e0"}))
    place.holdings.reserve(RunKey("default", "r11"), TASK)
    place.holdings.seated(elsewhere, [(FULL_ID, 1)])
    task, attempt = assigned(seat)
    place.holdings.assigned("default", task, attempt)
    place.holdings.forget_run(R1)
    assert place.holdings.has_slot(seat, (FULL_ID, 1))
    assert not place.holdings.has_slot(seat, ("r1/1/b/t0/e0", 1))
    assert place.holdings.has_slot(seat, ("r11/1/a/t0/e0", 1))
    assert place.holdings.has_slot(elsewhere, (FULL_ID, 1))
    assert seat.in_flight == 2
    assert not place.holdings.has(seat, attempt)


def test_a_frame_gives_back_the_slots_of_all_that_it_reports_once(place):
    seat = place.join()
    other = place.join("e2", token=b"another process.")
    place.holdings.seated(seat, [(FULL_ID, 1), (FULL_ID, 2), ("r2/1/a/t0/e0", 1)])
    place.registry.open(seat, 3)
    reported = [
        executor_service_pb2.AttemptOutcome(task_id=task_id, attempt=number)
        for task_id, number in (
            *((FULL_ID, 1), (FULL_ID, 1)),
            *(("r2/1/a/t0/e0", 1), ("r3/1/a/t0/e0", 1)),
        )
    ]
    for _ in range(2):
        place.holdings.free_all(seat, reported)
        place.holdings.free_all(other, reported)
        assert (seat.in_flight, len(place.holdings)) == (1, 1)
    assert place.holdings.has_slot(seat, (FULL_ID, 2))
