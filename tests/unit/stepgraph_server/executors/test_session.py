"""The server's half of a session: what each frame does, what is sent in which order, and when it ends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2, value_pb2
from stepgraph_server.core.instants import SECOND, Instant, Span, to_duration
from stepgraph_server.executors.seats import Wanted
from stepgraph_server.executors.session import (
    MAX_WAITING_REJECTS,
    TRANSITIONS,
    ServerSession,
    State,
)
from stepgraph_server.executors.session_events import (
    AttemptRejected,
    AttemptsAccepted,
    ByeReceived,
    CapabilitiesChanged,
    CapacityChanged,
    HelloReceived,
    OutcomesReceived,
    ProgressReceived,
    SessionClosed,
    Terms,
)
from tests.support.hellos import agent, hello, llm, ref

NOW = Instant(1_000_000_000)
NEWER = bytes.fromhex("ba3e00")  # field 999, of a version to come


def at(seconds):
    return Instant(NOW + round(seconds * SECOND))


def up(**frame):
    return pb.ConnectRequest(**frame).SerializeToString()


def task(task_id="r/t", size=0):
    return task_pb2.Task(task_id=task_id, attempt=1, idempotency_key="x" * size).SerializeToString()


def down(session, now=NOW):
    return [pb.ConnectResponse.FromString(data) for data in session.data_to_send(now)]


def kinds(session, now=NOW):
    return [frame.WhichOneof("frame") for frame in down(session, now)]


def live(terms=None):
    session = ServerSession(terms or Terms(), NOW)
    (event,) = session.receive(up(hello=hello()), NOW)
    assert isinstance(event, HelloReceived)
    session.welcome("s1", Wanted())
    assert kinds(session) == ["welcome"]
    return session


class TestBeginning:
    def test_a_hello_is_answered_with_a_welcome(self):
        session = ServerSession(Terms(server_version="stepgraph/1"), NOW)
        assert session.state is State.NEW
        (event,) = session.receive(up(hello=hello("w", max_in_flight=2)), NOW)
        assert isinstance(event, HelloReceived)
        assert (event.executor_id, event.max_in_flight) == ("w", 2)
        assert session.state is State.LIVE
        assert down(session) == []
        session.welcome("s1", Wanted(attempts=[ref("r/a")], results=[ref("r/b")]))
        (frame,) = down(session)
        assert frame.welcome == pb.Welcome(
            session_id="s1",
            protocol_version=1,
            ping_interval=to_duration(Span(5 * SECOND)),
            silence_limit=to_duration(Span(15 * SECOND)),
            lost_grace=to_duration(Span(30 * SECOND)),
            cancel_grace=to_duration(Span(10 * SECOND)),
            max_inline_value_bytes=262_144,
            max_stored_value_bytes=67_108_864,
            max_frame_bytes=4_194_304,
            wanted_attempts=[ref("r/a")],
            wanted_results=[ref("r/b")],
            server_version="stepgraph/1",
        )

    def test_nothing_goes_before_the_welcome(self):
        session = ServerSession(Terms(), NOW)
        session.receive(up(hello=hello()), NOW)
        session.send_tasks([task()])
        assert down(session) == []
        session.welcome("s1", Wanted())
        assert kinds(session) == ["welcome", "tasks"]

    def test_a_hello_is_answered_once(self):
        session = live()
        with pytest.raises(AssertionError):
            session.welcome("s2", Wanted())

    @pytest.mark.parametrize(
        ("data", "field"),
        [
            (up(pong=pb.Pong()), "frame"),
            (b"", "frame"),
            (NEWER, "frame"),
            (b"\xff", ""),
            (up(hello=hello("?")), "hello.executor_id"),
            (up(hello=hello(capabilities=[agent("?")])), "hello.capabilities[0].agent.kind"),
        ],
        ids=str,
    )
    def test_anything_but_a_good_hello_ends_it(self, data, field):
        session = ServerSession(Terms(), NOW)
        (event,) = session.receive(data, NOW)
        assert isinstance(event, SessionClosed)
        assert event.reason == "HELLO_INVALID"
        assert event.metadata == {"field": field}
        assert [violation.path for violation in event.violations] == [field]
        assert session.state is State.CLOSED
        assert session.receive(up(hello=hello()), NOW) == []
        assert down(session) == []

    def test_a_hello_that_is_too_large_ends_it(self):
        session = ServerSession(Terms(max_frame_bytes=100), NOW)
        (event,) = session.receive(up(hello=hello(labels={"a": "x" * 100})), NOW)
        assert event.reason == "HELLO_INVALID"
        assert "PAYLOAD_TOO_LARGE" in event.message

    def test_a_capability_of_a_newer_version_is_rejected_and_the_session_lives(self):
        session = ServerSession(Terms(), NOW)
        newer = pb.Capability.FromString(NEWER)
        (event,) = session.receive(up(hello=hello(capabilities=[llm("m"), newer])), NOW)
        assert isinstance(event, HelloReceived)
        session.welcome("s1", Wanted())
        _, reject = down(session)
        assert reject.reject.frame_ordinal == 1
        assert reject.reject.field == "hello.capabilities[1]"
        assert reject.reject.reason == "UNKNOWN_VARIANT"


class TestFrames:
    def test_accepted_attempts(self):
        (event,) = live().receive(up(accepted=pb.Accepted(attempts=[ref("r/a", 2)])), NOW)
        assert isinstance(event, AttemptsAccepted)
        assert list(event.attempts) == [ref("r/a", 2)]

    def test_outcomes(self):
        outcome = pb.AttemptOutcome(
            task_id="r/a", attempt=1, cancelled=pb.AttemptOutcome.Cancelled()
        )
        (event,) = live().receive(up(results=pb.Results(outcomes=[outcome])), NOW)
        assert isinstance(event, OutcomesReceived)
        assert list(event.outcomes) == [outcome]

    def test_an_outcome_that_can_not_be_taken_is_a_failure_and_a_reject(self):
        session = live()
        bad = pb.AttemptOutcome(task_id="r/a", attempt=1)
        (event,) = session.receive(up(results=pb.Results(outcomes=[bad])), NOW)
        assert event.outcomes[0].failed.failure.code == "RESULT_INVALID"
        (frame,) = down(session)
        assert frame.reject.attempt == ref("r/a")
        assert frame.reject.frame_ordinal == 0

    def test_progress(self):
        item = pb.AttemptProgress(task_id="r/a", attempt=1)
        session = live()
        (event,) = session.receive(up(progress=pb.ProgressReport(items=[item])), NOW)
        assert isinstance(event, ProgressReceived)
        assert list(event.items) == [item]

    def test_progress_that_can_not_be_shown_is_rejected(self):
        session = live()
        item = pb.AttemptProgress(
            task_id="r/a", attempt=1, progress=[task_pb2.TaskProgress(index=3)]
        )
        (event,) = session.receive(up(progress=pb.ProgressReport(items=[item])), NOW)
        assert list(event.items) == []
        assert kinds(session) == ["reject"]

    def test_an_update_of_capacity_and_capabilities(self):
        session = live()
        update = pb.Update(
            max_in_flight=0, added_capabilities=[agent("k")], removed_capabilities=[llm("gpt-*")]
        )
        changed, capacity = session.receive(up(update=update), NOW)
        assert isinstance(changed, CapabilitiesChanged)
        assert changed.abilities.can(("agent", "k"))
        assert not changed.abilities.can(("llm", "gpt-1"))
        assert capacity == CapacityChanged(max_in_flight=0)

    def test_an_update_without_capacity_leaves_it(self):
        assert live().receive(up(update=pb.Update()), NOW) == []

    def test_a_wrong_update_changes_nothing(self):
        session = live()
        bad = pb.Update(max_in_flight=3, added_capabilities=[agent("a"), agent("?")])
        assert session.receive(up(update=bad), NOW) == []
        (frame,) = down(session)
        assert frame.reject.field == "update.added_capabilities[1].agent.kind"
        (event,) = session.receive(up(update=pb.Update(added_capabilities=[agent("b")])), NOW)
        assert not event.abilities.can(("agent", "a"))

    def test_an_update_with_a_newer_capability_takes_what_is_known(self):
        session = live()
        newer = pb.Capability.FromString(NEWER)
        update = pb.Update(added_capabilities=[newer, agent("k")])
        (event,) = session.receive(up(update=update), NOW)
        assert event.abilities.can(("agent", "k"))
        (frame,) = down(session)
        assert frame.reject.field == "update.added_capabilities[0]"

    def test_a_rejected_attempt(self):
        reject = pb.Reject(attempt=ref("r/a"), reason="UNKNOWN_VARIANT", message="what?")
        (event,) = live().receive(up(reject=reject), NOW)
        assert event == AttemptRejected(
            attempt=ref("r/a"), reason="UNKNOWN_VARIANT", message="what?"
        )

    def test_a_rejected_frame_of_ours_changes_nothing(self):
        session = live()
        assert session.receive(up(reject=pb.Reject(frame_ordinal=3)), NOW) == []
        assert down(session) == [], "a reject is not answered with a reject"

    def test_a_pong_is_just_a_sign_of_life(self):
        assert live().receive(up(pong=pb.Pong(nonce=1)), NOW) == []

    def test_bye_ends_it(self):
        session = live()
        assert session.receive(up(bye=pb.Bye(reason="done")), NOW) == [ByeReceived(reason="done")]
        assert session.state is State.CLOSED
        assert session.receive(up(pong=pb.Pong()), NOW) == []

    @pytest.mark.parametrize(
        ("data", "reason", "field"),
        [
            (b"\xff", "INVALID_REQUEST", ""),
            (NEWER, "UNKNOWN_VARIANT", "frame"),
            (b"", "UNKNOWN_VARIANT", "frame"),
            (up(hello=hello()), "INVALID_REQUEST", "frame"),
            (up(accepted={"attempts": [{}]}), "INVALID_REQUEST", "accepted.attempts[0]"),
            (up(results={"outcomes": [{}]}), "INVALID_REQUEST", "results.outcomes[0]"),
            (up(progress={"items": [{}]}), "INVALID_REQUEST", "progress.items[0]"),
            (up(reject={"attempt": {"task_id": "x"}}), "INVALID_REQUEST", "reject.attempt"),
            (up(bye={"reason": "x" * 300}), "PAYLOAD_TOO_LARGE", ""),
        ],
        ids=lambda value: value if isinstance(value, str) else value[:20].hex(),
    )
    def test_a_bad_frame_is_rejected_by_its_ordinal_and_the_session_lives(
        self, data, reason, field
    ):
        session = live(Terms(max_frame_bytes=300))
        session.receive(up(pong=pb.Pong()), NOW)
        assert session.receive(data, NOW) == []
        (frame,) = down(session)
        assert frame.reject.frame_ordinal == 3
        assert (frame.reject.reason, frame.reject.field) == (reason, field)
        assert frame.reject.message
        assert not frame.reject.HasField("attempt")
        assert session.state is State.LIVE

    def test_a_peer_that_sends_nothing_but_nonsense_is_let_go(self):
        session = live()
        for _ in range(MAX_WAITING_REJECTS):
            assert session.receive(b"\xff", NOW) == []
        (event,) = session.receive(b"\xff", NOW)
        assert event.reason == "LIMIT_EXCEEDED"

    @given(st.lists(st.binary(max_size=60), max_size=20))
    def test_no_bytes_make_it_raise(self, frames):
        session = live()
        for data in frames:
            session.receive(data, NOW)
        session.data_to_send(NOW)


class TestStates:
    def test_every_frame_of_the_schema_has_its_place(self):
        frames = pb.ConnectRequest.DESCRIPTOR.oneofs_by_name["frame"].fields
        assert {kind for _, kind in TRANSITIONS} == {field.name for field in frames}

    def test_nothing_leads_out_of_closed(self):
        assert not [state for state, _ in TRANSITIONS if state is State.CLOSED]

    def test_the_table_is_what_happens(self):
        frames = {
            "hello": up(hello=hello()),
            "accepted": up(accepted=pb.Accepted()),
            "results": up(results=pb.Results()),
            "progress": up(progress=pb.ProgressReport()),
            "update": up(update=pb.Update()),
            "reject": up(reject=pb.Reject(frame_ordinal=1)),
            "pong": up(pong=pb.Pong()),
            "bye": up(bye=pb.Bye()),
        }
        for state, kind in itertools.product((State.LIVE, State.DRAINING), frames):
            session = live()
            if state is State.DRAINING:
                session.send_drain("", SECOND)
                down(session)
            session.receive(frames[kind], NOW)
            assert session.state is TRANSITIONS.get((state, kind), state)
            assert ("reject" in kinds(session)) is ((state, kind) not in TRANSITIONS)


class TestSending:
    def test_all_that_is_ready_of_tasks_and_acks_is_one_frame(self):
        session = live()
        session.send_tasks([task("r/a"), task("r/b")])
        session.send_tasks([task("r/c")])
        session.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
        session.send_acks([("r/y", 300, pb.ACK_VERDICT_STALE)])
        (frame,) = down(session)
        assert [item.task_id for item in frame.tasks.tasks] == ["r/a", "r/b", "r/c"]
        assert list(frame.tasks.acks) == [
            pb.Ack(task_id="r/x", attempt=1, verdict=pb.ACK_VERDICT_ACCEPTED),
            pb.Ack(task_id="r/y", attempt=300, verdict=pb.ACK_VERDICT_STALE),
        ]
        assert down(session) == []

    def test_acks_without_tasks_have_a_frame_of_their_own(self):
        session = live()
        session.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
        assert kinds(session) == ["acks"]

    def test_a_task_arrives_before_its_cancel_and_before_the_drain(self):
        session = live()
        session.send_tasks([task()])
        session.send_cancels([ref("r/t")], "run limit", Span(10 * SECOND))
        session.send_drain("shutting down", Span(5 * SECOND))
        session.reject(ref("r/u"), "RESULT_INVALID", "no")
        tasks, cancel, reject, drain = down(session)
        assert tasks.HasField("tasks")
        assert cancel.cancel == pb.Cancel(
            attempts=[ref("r/t")], reason="run limit", grace=to_duration(Span(10 * SECOND))
        )
        assert reject.reject.attempt == ref("r/u")
        assert drain.drain.reason == "shutting down"
        assert drain.drain.grace == to_duration(Span(5 * SECOND))

    def test_batches_are_cut_at_1_mib(self):
        session = live()
        session.send_tasks([task(f"r/{index}", 300_000) for index in range(7)])
        frames = down(session)
        assert [len(frame.tasks.tasks) for frame in frames] == [3, 3, 1]

    def test_what_waits_is_counted(self):
        session = live()
        session.send_tasks([task(size=1_000)])
        session.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
        assert 1_000 < session.waiting_bytes < 1_100
        down(session)
        assert session.waiting_bytes == 0

    def test_while_draining_no_tasks_are_sent_but_everything_else(self):
        session = live()
        session.send_drain("", SECOND)
        session.send_drain("again", SECOND)
        session.send_tasks([task()])
        session.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
        assert kinds(session) == ["acks", "drain"]
        assert session.state is State.DRAINING

    def test_after_the_end_whatever_is_said_is_dropped(self):
        session = live()
        (event,) = session.close("SESSION_SUPERSEDED", "a newer one", {"executor_id": "w"})
        assert event.reason == "SESSION_SUPERSEDED"
        assert session.close("OTHER", "", {}) == [], "the first reason stands"
        session.send_tasks([task()])
        session.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
        session.send_cancels([ref("r/t")], "", SECOND)
        session.send_drain("", SECOND)
        session.reject(ref("r/t"), "X", "")
        assert down(session) == []

    def test_what_was_said_before_the_end_is_still_sent(self):
        session = live()
        session.send_acks([("r/x", 1, pb.ACK_VERDICT_ACCEPTED)])
        session.receive(up(bye=pb.Bye()), NOW)
        assert kinds(session) == ["acks"]

    def test_a_large_task_is_not_encoded_again(self):
        session = live()
        value = value_pb2.Value(text="payload" * 1_000)
        data = task_pb2.Task(
            task_id="r/t",
            attempt=1,
            input=task_pb2.TaskInput(effect=task_pb2.TaskInput.Effect(kind="k", payload=value)),
        ).SerializeToString()
        session.send_tasks([data])
        (frame,) = session.data_to_send(NOW)
        assert data in frame


class TestTime:
    def test_its_own_silence_makes_it_ping(self):
        session = live()
        assert session.next_tick() == at(5)
        assert session.tick(at(4.9)) == []
        assert down(session) == []
        session.tick(at(5))
        (ping,) = down(session, at(5))
        session.receive(up(pong=pb.Pong(nonce=ping.ping.nonce)), at(5.1))
        assert session.next_tick() == at(10)
        session.tick(at(10))
        (second,) = down(session, at(10))
        assert second.ping.nonce != ping.ping.nonce

    def test_what_it_says_puts_the_ping_off_while_the_peer_is_heard(self):
        session = live()
        session.send_tasks([task()])
        down(session, at(3))
        session.receive(up(pong=pb.Pong()), at(4))
        assert session.next_tick() == at(8)
        session.tick(at(5))
        assert down(session) == []

    def test_a_peer_that_is_silent_is_pinged_though_the_server_speaks_all_the_time(self):
        session = live()
        for second in range(1, 12):
            session.send_cancels([ref("r/t")], "", SECOND)
            session.tick(at(second))
            frames = kinds(session, at(second))
            assert ("ping" in frames) is (second in (5, 10)), second

    def test_silence_ends_it(self):
        session = live()
        for second in (5, 10):
            assert session.tick(at(second)) == []
            down(session, at(second))
        assert session.next_tick() == at(15)
        (event,) = session.tick(at(15))
        assert event.reason == "SESSION_SILENT"
        assert event.metadata == {"silence_seconds": "15"}
        assert session.state is State.CLOSED
        assert session.tick(at(20)) == []

    def test_any_frame_is_a_sign_of_life_even_a_bad_one(self):
        session = live()
        for second in range(5, 60, 5):
            session.receive(b"\xff", at(second - 1))
            assert session.tick(at(second)) == []
            down(session, at(second))

    def test_no_hello_is_silence_too(self):
        session = ServerSession(Terms(), NOW)
        assert session.next_tick() == at(15)
        for second in (5, 10):
            assert session.tick(at(second)) == []
        (event,) = session.tick(at(15))
        assert event.reason == "SESSION_SILENT"

    def test_a_server_that_slept_does_not_blame_the_executor(self):
        session = live()
        assert session.tick(at(60)) == [], "its pongs of the last minute may not be read yet"
        down(session, at(60))
        assert session.tick(at(64)) == []
        (event,) = session.tick(at(66))
        assert event.reason == "SESSION_SILENT"

    def test_a_clock_that_goes_back_is_harmless(self):
        session = live()
        session.receive(up(pong=pb.Pong()), at(-100))
        assert session.tick(at(-100)) == []
        assert session.next_tick() == at(5)
