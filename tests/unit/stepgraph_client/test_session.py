"""The executor's half of its sessions: what is said on a stream, what is kept over streams, and what is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import task_pb2
from stepgraph_client import _session
from stepgraph_client._session import ExecutorSession, State
from stepgraph_client._session_events import (
    Acked,
    CancelRequested,
    DrainRequested,
    Identity,
    PingReceived,
    Rejected,
    ServerSilent,
    TasksReceived,
    Welcomed,
)

A, B, C = ("r/a", 1), ("r/b", 1), ("r/c", 1)
NEWER = bytes.fromhex("ba3e00")  # field 999, of a version to come
IDENTITY = Identity(
    executor_id="w", instance_token=b"0123456789abcdef", labels={"k": "v"}, client_name="tests/1"
)
AGENT = pb.Capability(agent=pb.Capability.Agent(kind="k"))


def down(**frame):
    return pb.ConnectResponse(**frame).SerializeToString()


def refs(*attempts):
    return [pb.AttemptRef(task_id=name, attempt=number) for name, number in attempts]


def tasks(*attempts):
    return down(
        tasks={"tasks": [{"task_id": name, "attempt": number} for name, number in attempts]}
    )


def acks(*attempts, verdict=pb.ACK_VERDICT_ACCEPTED):
    return down(
        acks={
            "acks": [
                {"task_id": name, "attempt": number, "verdict": verdict}
                for name, number in attempts
            ]
        }
    )


def outcome(attempt, text=""):
    response = {"message": {"content": [{"text": {"text": text}}]}}
    return pb.AttemptOutcome(
        task_id=attempt[0], attempt=attempt[1], succeeded={"llm": response}
    ).SerializeToString()


class Line:
    """A session, and what it has to say."""

    def __init__(self, capabilities=(AGENT,), max_in_flight=4):
        self.session = ExecutorSession(IDENTITY, capabilities, max_in_flight)

    def connect(self, *, attempts=(), results=(), now=0.0, **welcome):
        self.session.connected(now)
        (hello,) = self.frames()
        message = pb.Welcome(
            session_id="s",
            wanted_attempts=refs(*attempts),
            wanted_results=refs(*results),
            **welcome,
        )
        (event,) = self.receive(down(welcome=message))
        assert isinstance(event, Welcomed)
        self.welcomed = event
        return hello.hello

    def receive(self, data, now=0.0):
        return self.session.receive(data, now)

    def frames(self):
        return [pb.ConnectRequest.FromString(data) for data in self.session.data_to_send()]

    def kinds(self):
        return [frame.WhichOneof("frame") for frame in self.frames()]

    def finish(self, *attempts):
        for attempt in attempts:
            assert self.session.finish(attempt, outcome(attempt))


def attempts_of(frames):
    return [
        (item.task_id, item.attempt)
        for frame in frames
        for item in (*frame.results.outcomes, *frame.accepted.attempts)
    ]


@pytest.fixture
def line():
    line = Line()
    line.connect()
    return line


class TestHello:
    def test_the_first_frame_says_who_it_is_and_what_it_can_do(self):
        line = Line()
        assert line.session.state is State.APART
        assert line.frames() == []
        hello = line.connect()
        assert hello == pb.Hello(
            protocol_version=1,
            executor_id="w",
            instance_token=b"0123456789abcdef",
            labels={"k": "v"},
            capabilities=[AGENT],
            max_in_flight=4,
            client_name="tests/1",
        )
        assert line.session.state is State.LIVE

    def test_nothing_goes_before_the_welcome(self):
        line = Line()
        line.session.connected(0)
        line.session.resize(2)
        assert line.kinds() == ["hello"]
        assert line.kinds() == []

    def test_what_changed_before_a_stream_is_in_its_hello(self):
        line = Line()
        other = pb.Capability(agent=pb.Capability.Agent(kind="other"))
        line.session.resize(9)
        line.session.add(other)
        line.session.remove(AGENT)
        hello = line.connect()
        assert hello.max_in_flight == 9
        assert list(hello.capabilities) == [other]
        assert line.kinds() == []

    def test_what_is_held_and_what_is_kept_is_listed(self, line):
        line.receive(tasks(A, B))
        line.finish(B)
        line.session.disconnected()
        assert line.session.state is State.APART
        hello = line.connect(attempts=[A], results=[B])
        assert list(hello.held_attempts) == refs(A)
        assert list(hello.unacknowledged_results) == refs(B)


class TestTasks:
    def test_tasks_are_held_and_accepted_in_one_frame(self, line):
        (event,) = line.receive(tasks(A, B))
        assert isinstance(event, TasksReceived)
        assert [task.task_id for task in event.tasks] == ["r/a", "r/b"]
        assert line.session.held == 2
        assert line.session.holds(A)
        frames = line.frames()
        assert attempts_of(frames) == [A, B]
        assert line.frames() == []

    def test_what_is_done_at_once_is_not_accepted_first(self, line):
        line.receive(tasks(A, B))
        line.finish(A)
        accepted, results = line.frames()
        assert attempts_of([accepted]) == [B]
        assert attempts_of([results]) == [A]

    def test_a_task_that_comes_twice_is_worked_on_once(self, line):
        line.receive(tasks(A))
        assert line.receive(tasks(A)) == []
        line.finish(A)
        assert line.receive(tasks(A)) == []
        (event,) = line.receive(tasks(("r/a", 2)))
        assert event.tasks[0].attempt == 2

    def test_an_attempt_can_be_given_back(self, line):
        line.receive(tasks(A))
        line.session.give_back(A, "UNKNOWN_VARIANT", "what?")
        line.session.give_back(B, "UNKNOWN_VARIANT", "never held")
        (frame,) = line.frames()
        assert frame.reject.attempt == refs(A)[0]
        assert frame.reject.reason == "UNKNOWN_VARIANT"
        assert line.session.held == 0
        assert not line.session.finish(A, outcome(A))

    def test_cancels_name_what_is_held(self, line):
        line.receive(tasks(A, B))
        line.finish(B)
        cancel = {"attempts": refs(A, B, C), "reason": "enough", "grace": {"seconds": 10}}
        (event,) = line.receive(down(cancel=cancel))
        assert event == CancelRequested(attempts=[A], reason="enough", grace_s=10)
        assert line.receive(down(cancel={"attempts": refs(C)})) == []


class TestResults:
    def test_a_result_is_kept_until_it_is_acknowledged(self, line):
        line.receive(tasks(A, B))
        line.finish(A, B)
        assert attempts_of(line.frames()) == [A, B]
        assert line.session.unacknowledged == 2
        (event,) = line.receive(acks(A))
        assert isinstance(event, Acked)
        assert line.session.unacknowledged == 1
        assert line.frames() == [], "what was sent on this stream is not sent again"

    def test_acks_that_come_with_tasks_count_before_these(self, line):
        line.receive(tasks(A))
        line.finish(A)
        both = pb.Tasks(
            tasks=[{"task_id": "r/b", "attempt": 1}],
            acks=[{"task_id": "r/a", "attempt": 1, "verdict": pb.ACK_VERDICT_ACCEPTED}],
        )
        acked, given = line.receive(down(tasks=both))
        assert acked == Acked(acks=both.acks)
        assert list(given.tasks) == list(both.tasks)
        assert line.session.unacknowledged == 0
        assert line.session.holds(B)

    @pytest.mark.parametrize("verdict", [value for value in pb.AckVerdict.values() if value])
    def test_any_verdict_ends_it(self, line, verdict):
        line.receive(tasks(A))
        line.finish(A)
        line.receive(acks(A, verdict=verdict))
        assert line.session.unacknowledged == 0

    def test_nobody_waits_for_the_result_of_what_is_not_held(self, line):
        assert not line.session.finish(A, outcome(A))
        assert line.frames() == []

    def test_results_are_cut_into_batches(self, line):
        many = [(f"r/{index}", 1) for index in range(5)]
        line.receive(tasks(*many))
        for attempt in many:
            line.session.finish(attempt, outcome(attempt, "x" * 250_000))
        frames = line.frames()
        assert [len(frame.results.outcomes) for frame in frames] == [4, 1]
        assert attempts_of(frames) == many

    def test_a_server_that_takes_small_frames_gets_small_batches(self):
        line = Line()
        line.connect(max_frame_bytes=1_000)
        many = [(f"r/{index}", 1) for index in range(20)]
        line.receive(tasks(*many))
        for attempt in many:
            line.session.finish(attempt, outcome(attempt, "x" * 100))
        assert all(frame.ByteSize() <= 1_000 for frame in line.frames())

    def test_what_is_too_large_for_the_server_becomes_a_failure(self):
        line = Line()
        line.connect(max_inline_value_bytes=100)
        line.receive(tasks(A, B))
        line.session.finish(A, outcome(A, "x" * 101))
        line.session.finish(B, outcome(B, "x" * 50))
        (frame,) = line.frames()
        too_large, fine = frame.results.outcomes
        assert too_large.failed.failure.code == "PAYLOAD_TOO_LARGE"
        assert fine.WhichOneof("outcome") == "succeeded"

    def test_limits_are_those_of_the_last_welcome(self):
        line = Line()
        line.connect()
        line.receive(tasks(A))
        line.session.finish(A, outcome(A, "x" * 1_000))
        line.session.disconnected()
        line.connect(results=[A], max_inline_value_bytes=500)
        assert line.session.limits.max_inline_value_bytes == 500
        (frame,) = line.frames()
        assert frame.results.outcomes[0].failed.failure.code == "PAYLOAD_TOO_LARGE"


class TestReconnecting:
    def test_what_is_still_wanted_goes_on_and_what_is_not_is_lost(self, line):
        line.receive(tasks(A, B))
        line.session.disconnected()
        line.connect(attempts=[B])
        assert line.welcomed.lost == [A]
        assert not line.session.holds(A)
        assert line.session.holds(B)
        assert line.kinds() == [], "what is listed need not be accepted again"
        assert not line.session.finish(A, outcome(A))
        line.finish(B)
        assert attempts_of(line.frames()) == [B]

    def test_results_that_are_wanted_are_sent_again_and_the_others_dropped(self, line):
        line.receive(tasks(A, B))
        line.finish(A, B)
        line.frames()
        line.session.disconnected()
        line.connect(results=[B])
        assert line.welcomed.dropped == 1
        assert attempts_of(line.frames()) == [B]
        assert line.session.unacknowledged == 1

    def test_what_is_finished_while_there_is_no_stream_is_sent_on_the_next(self, line):
        line.receive(tasks(A))
        line.session.disconnected()
        line.finish(A)
        assert line.frames() == []
        hello = line.connect(results=[A])
        assert list(hello.unacknowledged_results) == refs(A)
        assert attempts_of(line.frames()) == [A]

    def test_what_is_finished_between_hello_and_welcome_follows_if_it_is_wanted(self, line):
        line.receive(tasks(A, B))
        line.session.disconnected()
        line.session.connected(0)
        (hello,) = line.frames()
        assert list(hello.hello.held_attempts) == refs(A, B)
        line.finish(A, B)
        assert line.frames() == []
        line.receive(down(welcome={"wanted_attempts": refs(A)}))
        assert attempts_of(line.frames()) == [A]
        assert line.session.unacknowledged == 1, "the other one was not wanted"

    def test_what_was_given_back_between_hello_and_welcome_is_gone(self, line):
        line.receive(tasks(A))
        line.session.disconnected()
        line.session.connected(0)
        line.frames()
        line.session.give_back(A, "X", "")
        (event,) = line.receive(down(welcome={}))
        assert event.lost == []
        assert event.dropped == 0
        assert line.kinds() == ["reject"]

    def test_updates_and_rejects_of_a_lost_stream_are_not_repeated(self, line):
        line.receive(tasks(A))
        line.session.resize(1)
        line.session.give_back(A, "X", "")
        line.session.disconnected()
        hello = line.connect()
        assert hello.max_in_flight == 1
        assert list(hello.held_attempts) == []
        assert line.kinds() == []


class TestProgress:
    def show(self, line, attempt, text):
        return line.session.show(
            attempt, task_pb2.TaskProgress(text=task_pb2.TaskProgress.TextDelta(text=text))
        )

    def test_progress_of_all_attempts_is_one_frame_with_gapless_indices(self, line):
        line.receive(tasks(A, B))
        line.frames()
        for attempt, text in ((A, "1"), (B, "2"), (A, "3")):
            assert self.show(line, attempt, text)
        (frame,) = line.frames()
        first, second = frame.progress.items
        assert (first.task_id, first.attempt) == A
        assert [(piece.index, piece.text.text) for piece in first.progress] == [(0, "1"), (1, "3")]
        assert [(piece.index, piece.text.text) for piece in second.progress] == [(0, "2")]
        self.show(line, A, "4")
        (frame,) = line.frames()
        assert frame.progress.items[0].progress[0].index == 2

    def test_it_goes_before_the_result(self, line):
        line.receive(tasks(A))
        self.show(line, A, "x")
        line.finish(A)
        assert line.kinds() == ["progress", "results"]

    def test_nobody_sees_progress_of_what_is_not_held(self, line):
        assert not self.show(line, A, "x")
        line.session.live(A)
        assert line.frames() == []

    def test_a_mere_sign_of_life_is_empty(self, line):
        line.receive(tasks(A))
        line.frames()
        line.session.live(A)
        (frame,) = line.frames()
        (item,) = frame.progress.items
        assert (item.task_id, item.attempt, len(item.progress)) == ("r/a", 1, 0)

    def test_what_waits_for_a_stream_is_bounded_and_the_gap_shows(self, line, monkeypatch):
        monkeypatch.setattr(_session, "MAX_WAITING_PROGRESS_BYTES", 100)
        line.receive(tasks(A))
        line.session.disconnected()
        for _ in range(20):
            self.show(line, A, "x" * 20)
        line.connect(attempts=[A])
        (frame,) = line.frames()
        assert [piece.index for piece in frame.progress.items[0].progress] == [0, 1, 2]
        self.show(line, A, "x")
        (frame,) = line.frames()
        assert frame.progress.items[0].progress[0].index == 20

    def test_progress_of_a_lost_attempt_is_dropped(self, line):
        line.receive(tasks(A))
        line.session.disconnected()
        self.show(line, A, "x")
        line.connect()
        assert line.frames() == []

    def test_much_progress_is_cut_into_frames(self, line):
        line.receive(tasks(A))
        line.frames()
        for _ in range(12):
            self.show(line, A, "x" * 80_000)
        line.frames()
        for index in range(4):
            self.show(line, A, str(index) + "x" * 200_000)
        frames = line.frames()
        assert all(frame.ByteSize() <= 1_100_000 for frame in frames)
        shown = [
            piece.text.text[0]
            for frame in frames
            for item in frame.progress.items
            for piece in item.progress
        ]
        assert shown == ["0", "1", "2", "3"]


class TestChanges:
    def test_changes_are_updates(self, line):
        other = pb.Capability(agent=pb.Capability.Agent(kind="other"))
        line.session.resize(0)
        line.session.add(other)
        line.session.remove(AGENT)
        assert [frame.update for frame in line.frames()] == [
            pb.Update(max_in_flight=0),
            pb.Update(added_capabilities=[other]),
            pb.Update(removed_capabilities=[AGENT]),
        ]

    def test_bye_is_the_last_word(self, line):
        line.receive(tasks(A))
        line.finish(A)
        line.session.bye("done")
        assert line.kinds() == ["results", "bye"]
        assert line.session.state is State.DONE
        line.session.resize(3)
        assert line.frames() == []

    def test_a_drain_is_an_event(self, line):
        drain = {"reason": "stopping", "grace": {"seconds": 5}}
        assert line.receive(down(drain=drain)) == [DrainRequested(reason="stopping", grace_s=5)]


class TestRejects:
    def test_a_frame_of_an_unknown_kind_is_rejected_by_its_ordinal(self, line):
        assert line.receive(NEWER) == []
        (frame,) = line.frames()
        assert frame.reject.frame_ordinal == 2, "the welcome was the first"
        assert frame.reject.reason == "UNKNOWN_VARIANT"

    def test_bytes_that_are_no_frame_are_rejected(self, line):
        assert line.receive(b"\xff") == []
        assert line.frames()[0].reject.reason == "INVALID_REQUEST"

    def test_a_second_welcome_is_rejected(self, line):
        assert line.receive(down(welcome={})) == []
        assert line.kinds() == ["reject"]

    def test_anything_before_the_welcome_is_rejected(self):
        line = Line()
        line.session.connected(0)
        assert line.receive(tasks(A)) == []
        assert line.session.held == 0

    def test_a_reject_of_an_attempt_is_an_event(self, line):
        reject = pb.Reject(attempt=refs(A)[0], reason="UNKNOWN_VARIANT")
        assert line.receive(down(reject=reject)) == [Rejected(reject=reject)]

    def test_results_in_a_rejected_frame_become_failures_once(self, line):
        line.receive(tasks(A, B))
        line.finish(A)
        line.frames()  # the hello, accepted, and results: the third frame
        line.finish(B)
        line.frames()
        (event,) = line.receive(down(reject={"frame_ordinal": 3, "reason": "INVALID_REQUEST"}))
        assert event.failed == (A,)
        (frame,) = line.frames()
        (replaced,) = frame.results.outcomes
        assert replaced.failed.failure.code == "RESULT_INVALID"
        (event,) = line.receive(down(reject={"frame_ordinal": 5, "reason": "INVALID_REQUEST"}))
        assert event.dropped == (A,)
        assert line.session.unacknowledged == 1
        assert line.frames() == []

    def test_a_rejected_frame_without_results_changes_nothing(self, line):
        line.receive(tasks(A))
        line.frames()
        (event,) = line.receive(down(reject={"frame_ordinal": 2}))
        assert event == Rejected(reject=pb.Reject(frame_ordinal=2))
        assert line.session.holds(A)


class TestTime:
    def test_a_ping_is_answered(self, line):
        assert line.receive(down(ping={"nonce": 7})) == [PingReceived(nonce=7)]
        (frame,) = line.frames()
        assert frame.pong.nonce == 7

    def test_silence_of_the_server_is_noticed(self, line):
        assert line.session.next_tick() == 5.0
        for now in (5.0, 10.0):
            assert line.session.tick(now) == []
        (event,) = line.session.tick(15.0)
        assert event == ServerSilent(silence_s=15.0)

    def test_any_frame_is_a_sign_of_life(self, line):
        for now in range(5, 60, 5):
            line.receive(b"\xff", now - 1)
            assert line.session.tick(now) == []

    def test_the_servers_own_limit_counts(self):
        line = Line()
        line.connect(silence_limit={"seconds": 2}, ping_interval={"nanos": 500_000_000})
        assert line.session.next_tick() == 0.5
        for now in (0.5, 1.0, 1.5):
            assert line.session.tick(now) == []
        assert line.session.tick(2.0)

    def test_an_executor_that_slept_does_not_blame_the_server(self, line):
        assert line.session.tick(60.0) == []
        assert line.session.tick(64.0) == []
        assert line.session.tick(66.0)

    def test_without_a_stream_there_is_no_silence(self):
        line = Line()
        assert line.session.tick(100.0) == []

    def test_a_welcome_that_never_comes_is_silence(self):
        line = Line()
        line.session.connected(100.0)
        for now in (105.0, 110.0):
            assert line.session.tick(now) == []
        assert line.session.tick(115.0)


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_no_bytes_make_it_raise(frames):
    line = Line()
    line.connect()
    for data in frames:
        line.session.receive(data, 0.0)
    line.session.data_to_send()
