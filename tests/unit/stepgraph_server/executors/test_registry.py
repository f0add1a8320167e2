"""Who is connected, how much room they have, and where a task goes."""

from __future__ import annotations

from collections import Counter

import pytest

from stepgraph.v1 import event_pb2
from stepgraph_server.core.instants import SECOND, Instant, Span, after
from stepgraph_server.executors import registry as registry_module
from stepgraph_server.executors.capabilities import change
from stepgraph_server.executors.registry import Registry
from tests.support.hellos import TOKEN, agent, hello, llm, received, tool
from tests.support.outlets import RecordingOutlet

NOW = Instant(1_000_000_000)
GRACE = Span(30 * SECOND)
MODEL = ("llm", "gpt-4")
OTHER_TOKEN = b"another-token-of-16"


class House:
    """A registry, and whom it said to have room."""

    def __init__(self):
        self.room = []
        self.registry = Registry(GRACE, self.room.append)

    def connect(self, executor_id="worker-1", *, in_flight=0, **options):
        seat = self.join(executor_id, **options).seat
        assert self.registry.open(seat, in_flight)
        return seat

    def join(self, executor_id="worker-1", *, now=NOW, **options):
        return self.registry.join(received(hello(executor_id, **options)), RecordingOutlet(), now)

    def place(self, key=MODEL, selector=(), namespace="default"):
        seat = self.registry.reserve(namespace, key, selector)
        return None if seat is None else seat.executor_id


@pytest.fixture
def house():
    return House()


class TestPlacing:
    def test_a_task_goes_to_an_executor_that_can_do_it(self, house):
        house.connect("writer", capabilities=[agent("writer")])
        house.connect("model", capabilities=[llm("gpt-*")])
        assert house.place(("agent", "writer")) == "writer"
        assert house.place(MODEL) == "model"
        assert house.place(("agent", "unknown")) is None

    def test_nobody_is_known_in_another_namespace(self, house):
        house.connect(namespace="blue")
        assert house.place() is None
        assert house.place(namespace="blue") == "worker-1"
        assert house.registry.capable("green", MODEL, ()) == 0

    def test_models_match_exactly_or_by_prefix(self, house):
        house.connect("exact", capabilities=[llm("claude")])
        assert house.place(("llm", "claude")) == "exact"
        assert house.place(("llm", "claude-2")) is None
        house.connect("any", capabilities=[llm("*")])
        assert house.place(("llm", "claude-2")) == "any"
        assert house.place(("llm", "")) == "any"

    def test_each_pair_of_the_selector_must_be_among_the_labels(self, house):
        house.connect("eu", labels={"region": "eu", "gpu": "yes"})
        house.connect("us", labels={"region": "us"})
        assert house.place(selector=(("region", "us"),)) == "us"
        assert house.place(selector=(("gpu", "yes"), ("region", "eu"))) == "eu"
        assert house.place(selector=(("gpu", "yes"), ("region", "us"))) is None

    def test_a_call_goes_only_to_executors_with_the_digest_of_the_decision(self, house):
        old = house.connect("old", capabilities=[tool(description="old")])
        house.connect("new", capabilities=[tool(description="new")])
        digest = old.abilities.tools["search"].digest
        assert {house.place(("tool", "search", digest)) for _ in range(4)} == {"old"}
        assert house.place(("tool", "search", digest)) is None
        assert house.place(("tool", "search", "")) == "new"

    def test_never_more_than_max_in_flight(self, house):
        house.connect(max_in_flight=3)
        assert [house.place() for _ in range(5)] == ["worker-1"] * 3 + [None, None]

    def test_the_least_loaded_is_first_by_the_share_of_its_room(self, house):
        house.connect("large", max_in_flight=8)
        house.connect("small", max_in_flight=2)
        assert Counter(house.place() for _ in range(5)) == {"large": 4, "small": 1}
        assert Counter(house.place() for _ in range(5)) == {"large": 4, "small": 1}

    def test_a_preferred_instance_goes_first_while_it_has_room(self, house):
        house.connect("idle", max_in_flight=8)
        loaded = house.connect("loaded", max_in_flight=2, token=OTHER_TOKEN)
        taken = [
            house.registry.reserve("default", MODEL, (), loaded.instance).executor_id
            for _ in range(3)
        ]
        assert taken == ["loaded", "loaded", "idle"]

    def test_equally_loaded_ones_take_turns(self, house):
        seats = [house.connect(f"w{index}") for index in range(3)]
        placed = []
        for _ in range(6):
            seat = house.registry.reserve("default", MODEL, ())
            placed.append(seat.executor_id)
            house.registry.release(seat)
        assert placed == ["w0", "w1", "w2"] * 2
        assert all(seat.in_flight == 0 for seat in seats)

    def test_of_very_many_some_are_compared_and_all_get_work(self, house):
        for index in range(3 * registry_module.MAX_COMPARED):
            house.connect(f"w{index}", max_in_flight=2)
        total = 6 * registry_module.MAX_COMPARED
        placed = Counter(house.place() for _ in range(total))
        assert set(placed.values()) == {2}
        assert len(placed) == 3 * registry_module.MAX_COMPARED
        assert house.place() is None

    def test_remembered_lists_are_bounded(self, house, monkeypatch):
        monkeypatch.setattr(registry_module, "MAX_REMEMBERED_LISTS", 2)
        house.connect(max_in_flight=10)
        for index in range(5):
            assert house.place(("llm", f"gpt-{index}")) == "worker-1"

    def test_capable_counts_who_could_if_it_had_room(self, house):
        full = house.connect("full", max_in_flight=1)
        house.connect("drained", max_in_flight=0)
        house.join("not-yet-welcome")
        house.registry.reserve("default", MODEL, ())
        assert house.registry.capable("default", MODEL, ()) == 1
        house.registry.drain(full)
        assert house.registry.capable("default", MODEL, ()) == 0
        assert house.registry.capable("default", ("agent", "x"), ()) == 0


class TestRoom:
    def test_free_slots_of_all_who_could_are_counted(self, house):
        house.connect("a", max_in_flight=3)
        house.connect("b", max_in_flight=2)
        paused = house.connect("c", max_in_flight=9)
        house.registry.pause(paused)
        house.connect("d", capabilities=[agent("x")])
        house.place()
        assert house.registry.room("default", MODEL, ()) == 4
        assert house.registry.room("nowhere", MODEL, ()) == 0

    def test_a_seat_has_no_room_until_it_is_opened(self, house):
        joined = house.join()
        assert house.place() is None
        assert house.room == []
        house.registry.open(joined.seat, 0)
        assert house.room == [joined.seat]
        assert house.place() == "worker-1"

    def test_what_it_still_holds_takes_room(self, house):
        house.connect(max_in_flight=4, in_flight=3)
        assert house.place() == "worker-1"
        assert house.place() is None

    def test_a_release_tells_of_room_only_if_there_was_none(self, house):
        seat = house.connect(max_in_flight=2)
        house.room.clear()
        house.place()
        house.registry.release(seat)
        assert house.room == []
        house.place()
        house.place()
        house.registry.release(seat, 2)
        assert house.room == [seat]
        assert seat.in_flight == 0

    def test_a_release_too_many_is_harmless(self, house):
        seat = house.connect(max_in_flight=1)
        house.registry.release(seat, 5)
        assert house.place() == "worker-1"
        assert house.place() is None

    def test_a_lower_capacity_lets_what_runs_go_on(self, house):
        seat = house.connect(max_in_flight=4)
        for _ in range(4):
            house.place()
        house.registry.resize(seat, 1)
        house.registry.release(seat, 3)
        assert house.place() is None
        house.registry.release(seat)
        assert house.place() == "worker-1"

    def test_capacity_0_drains_and_more_capacity_tells_of_room(self, house):
        seat = house.connect()
        house.registry.resize(seat, 0)
        assert house.place() is None
        house.room.clear()
        house.registry.resize(seat, 2)
        assert house.room == [seat]
        assert house.place() == "worker-1"

    def test_a_clogged_stream_pauses_a_seat(self, house):
        seat = house.connect()
        house.registry.pause(seat)
        assert house.place() is None
        house.room.clear()
        house.registry.resume(seat)
        assert house.room == [seat]
        assert house.place() == "worker-1"

    def test_a_draining_seat_stays_without_room(self, house):
        seat = house.connect()
        house.registry.drain(seat)
        house.registry.resize(seat, 9)
        house.registry.resume(seat)
        assert house.place() is None

    def test_a_new_capability_tells_of_room(self, house):
        seat = house.connect()
        house.room.clear()
        house.registry.change(seat, change(seat.abilities, added=[agent("x")], removed=[]))
        assert house.room == [seat]
        assert house.place(("agent", "x")) == "worker-1"

    def test_a_capability_that_is_gone_gets_nothing_more(self, house):
        seat = house.connect(capabilities=[agent("x"), llm("gpt-*")], max_in_flight=1)
        assert house.place(("agent", "x")) == "worker-1"
        house.room.clear()
        house.registry.change(seat, change(seat.abilities, added=[], removed=[agent("x")]))
        assert house.room == [], "it is full"
        house.registry.release(seat)
        assert house.place(("agent", "x")) is None


class TestComingAndGoing:
    def test_the_same_instance_takes_over_and_loses_nothing(self, house):
        old = house.connect()
        house.place()
        joined = house.join()
        assert joined.superseded is old
        assert joined.lost is None
        assert house.place() is None, "neither the old one nor the new one has room"
        assert house.registry.open(joined.seat, 1)
        assert house.registry.find("default", "worker-1", joined.seat.instance) is joined.seat
        assert joined.seat.in_flight == 1
        house.registry.release(old)
        assert joined.seat.in_flight == 1, "slots of the old session went with it"

    def test_another_instance_means_that_the_old_one_lost_everything(self, house):
        old = house.connect()
        joined = house.join(token=OTHER_TOKEN)
        assert joined.superseded is old
        assert joined.lost is not None
        assert joined.lost.instance == old.instance
        assert joined.lost.reason == event_pb2.TASK_LOSS_REASON_FORGOTTEN
        assert house.registry.find("default", "worker-1", old.instance) is None

    def test_the_capabilities_are_those_of_the_new_session_only(self, house):
        house.connect(capabilities=[agent("old")])
        house.connect(capabilities=[agent("new")])
        assert house.place(("agent", "old")) is None
        assert house.place(("agent", "new")) == "worker-1"

    def test_a_seat_that_was_superseded_before_it_opened_stays_shut(self, house):
        first = house.join().seat
        second = house.join().seat
        assert not house.registry.open(first, 0)
        assert house.registry.open(second, 0)
        assert house.registry.reserve("default", MODEL, ()) is second

    def test_what_happens_to_an_old_seat_does_not_touch_the_new_one(self, house):
        old = house.connect()
        new = house.connect()
        house.registry.lost(old, NOW)
        assert house.registry.leave(old) is None
        house.registry.resize(old, 9)
        house.registry.change(old, new.abilities)
        house.registry.resume(old)
        assert house.registry.next_expiry() is None
        assert house.registry.seats() == [new]
        assert house.registry.reserve("default", MODEL, ()) is new

    def test_a_lost_stream_starts_a_grace_and_ends_in_a_loss(self, house):
        seat = house.connect()
        house.registry.lost(seat, NOW)
        assert house.place() is None
        assert house.registry.seats() == []
        assert house.registry.find("default", "worker-1", seat.instance) is None
        assert house.registry.next_expiry() == after(NOW, GRACE)
        assert house.registry.expire(Instant(NOW + GRACE - 1)) == []
        (lost,) = house.registry.expire(after(NOW, GRACE))
        assert (lost.executor_id, lost.instance) == ("worker-1", seat.instance)
        assert lost.reason == event_pb2.TASK_LOSS_REASON_DISCONNECTED
        assert house.registry.expire(after(NOW, GRACE)) == []
        assert house.registry.next_expiry() is None

    def test_losing_a_stream_twice_does_not_prolong_the_grace(self, house):
        seat = house.connect()
        house.registry.lost(seat, NOW)
        house.registry.lost(seat, after(NOW, SECOND))
        assert house.registry.next_expiry() == after(NOW, GRACE)

    def test_coming_back_within_the_grace_ends_it(self, house):
        house.registry.lost(house.connect(), NOW)
        joined = house.join()
        assert joined.superseded is None
        assert joined.lost is None
        assert house.registry.next_expiry() is None

    def test_another_instance_within_the_grace_ends_it_with_a_loss(self, house):
        old = house.connect()
        house.registry.lost(old, NOW)
        joined = house.join(token=OTHER_TOKEN)
        assert joined.superseded is None
        assert joined.lost is not None
        assert joined.lost.instance == old.instance
        assert house.registry.next_expiry() is None

    def test_graces_end_in_the_order_in_which_they_started(self, house):
        first = house.connect("a")
        second = house.connect("b")
        house.registry.lost(second, NOW)
        house.registry.lost(first, after(NOW, SECOND))
        assert [lost.executor_id for lost in house.registry.expire(after(NOW, GRACE))] == ["b"]
        later = after(NOW, Span(GRACE + SECOND))
        assert [lost.executor_id for lost in house.registry.expire(later)] == ["a"]

    def test_bye_loses_the_instance_at_once(self, house):
        seat = house.connect()
        lost = house.registry.leave(seat)
        assert lost is not None
        assert lost.instance == seat.instance
        assert lost.reason == event_pb2.TASK_LOSS_REASON_FORGOTTEN
        assert house.place() is None
        assert house.registry.executors("default") == []

    def test_an_instance_of_before_the_restart_has_its_grace(self, house):
        instance = received(hello()).instance
        house.registry.expect("default", "worker-1", instance, NOW)
        house.registry.expect("default", "worker-1", instance, after(NOW, SECOND))
        assert house.registry.next_expiry() == after(NOW, GRACE)
        assert house.registry.find("default", "worker-1", instance) is None
        assert house.registry.executors("default") == []
        assert house.registry.seats() == []
        assert house.join().lost is None, "it came back"
        assert house.registry.next_expiry() is None

    def test_another_instance_than_that_of_before_the_restart_is_a_loss(self, house):
        house.registry.expect("default", "worker-1", "of-before", NOW)
        joined = house.join()
        assert joined.superseded is None
        assert joined.lost is not None
        assert joined.lost.instance == "of-before"


class TestListing:
    def test_executors_are_described_by_id(self, house):
        house.connect("b", labels={"x": "y"}, capabilities=[llm("m", "n"), agent("k")])
        lost = house.connect("a", max_in_flight=7)
        house.place()
        house.registry.lost(lost, NOW)
        first, second = house.registry.executors("default")
        assert (first.executor_id, first.connected, first.in_flight) == ("a", False, 1)
        assert (second.executor_id, second.connected) == ("b", True)
        assert second.labels == {"x": "y"}
        assert list(second.capabilities) == [llm("m", "n"), agent("k")]
        assert second.connect_time.seconds == 1000
        assert second.client_name == "tests/1"
        assert house.registry.executors("nowhere") == []

    def test_the_token_is_never_shown(self, house):
        house.connect()
        assert TOKEN not in house.registry.executors("default")[0].SerializeToString()

    def test_the_version_changes_with_what_is_offered(self, house):
        seen = {house.registry.version("default")}
        seat = house.connect()
        for act in (
            lambda: None,
            lambda: house.registry.resize(seat, 0),
            lambda: house.registry.change(seat, seat.abilities),
            lambda: house.registry.lost(seat, NOW),
            lambda: house.registry.expire(after(NOW, GRACE)),
            house.connect,
        ):
            act()
            version = house.registry.version("default")
            assert version not in seen
            seen.add(version)
        house.registry.resize(house.connect(), 3)
