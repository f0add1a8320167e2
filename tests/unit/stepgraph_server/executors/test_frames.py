"""What is taken of a frame, and what is refused, with the field."""

from __future__ import annotations

import hashlib

import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import failure_pb2, task_pb2, transition_pb2, value_pb2
from stepgraph_server.executors.frames import (
    check_attempt,
    check_attempts,
    check_hello,
    check_outcomes,
    check_progress,
    without_unknown,
)
from stepgraph_server.executors.violations import ViolationError
from tests.support.hellos import TOKEN, agent, hello, ref, tool

NEWER = bytes.fromhex("ba3e00")  # field 999, of a version to come


def refused(check, *args, **options):
    with pytest.raises(ViolationError) as caught:
        check(*args, **options)
    return caught.value.violation


def changed(**fields):
    message = hello()
    for name, value in fields.items():
        if isinstance(value, dict):
            getattr(message, name).update(value)
        elif isinstance(value, list):
            del getattr(message, name)[:]
            getattr(message, name).extend(value)
        else:
            setattr(message, name, value)
    return message


class TestHello:
    def test_a_good_one_is_taken_and_the_token_becomes_its_hash(self):
        message = hello("w:1", namespace="blue", labels={"a": "b"}, max_in_flight=9)
        message.held_attempts.append(ref("r/t", 2))
        message.unacknowledged_results.append(ref("r/u"))
        taken = check_hello(message, 1, 64)
        assert (taken.executor_id, taken.namespace, taken.max_in_flight) == ("w:1", "blue", 9)
        assert taken.instance == hashlib.sha256(TOKEN).hexdigest()
        assert taken.labels == {"a": "b"}
        assert list(taken.held) == [ref("r/t", 2)]
        assert list(taken.unacknowledged) == [ref("r/u")]
        assert taken.abilities.can(("llm", "gpt-1"))
        assert list(taken.ignored) == []

    def test_no_namespace_is_the_default_one(self):
        assert check_hello(hello(), 1, 64).namespace == "default"

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({"protocol_version": 0}, "hello.protocol_version"),
            ({"protocol_version": 2}, "hello.protocol_version"),
            ({"executor_id": ""}, "hello.executor_id"),
            ({"executor_id": "_x"}, "hello.executor_id"),
            ({"executor_id": "x" * 129}, "hello.executor_id"),
            ({"executor_id": "a\n"}, "hello.executor_id"),
            ({"instance_token": b"x" * 15}, "hello.instance_token"),
            ({"instance_token": b"x" * 65}, "hello.instance_token"),
            ({"namespace": "no space"}, "hello.namespace"),
            ({"labels": {str(i): "" for i in range(65)}}, "hello.labels"),
            ({"labels": {"": "x"}}, "hello.labels['']"),
            ({"labels": {"x": "y" * 129}}, "hello.labels['x']"),
            ({"held_attempts": [ref("r/t"), ref("t")]}, "hello.held_attempts[1]"),
            ({"held_attempts": [ref("r/t", 0)]}, "hello.held_attempts[0]"),
            (
                {"unacknowledged_results": [ref("r/" + "x" * 512)]},
                "hello.unacknowledged_results[0]",
            ),
            ({"capabilities": [agent("?")]}, "hello.capabilities[0].agent.kind"),
        ],
        ids=str,
    )
    def test_a_wrong_field_is_named(self, fields, path):
        assert refused(check_hello, changed(**fields), 1, 64).path == path

    def test_a_refusal_never_repeats_the_token(self):
        violation = refused(check_hello, changed(instance_token=b"secret"), 1, 64)
        assert "secret" not in violation.message

    def test_a_capability_of_a_newer_version_is_ignored_and_named(self):
        newer = pb.Capability.FromString(NEWER)
        taken = check_hello(changed(capabilities=[newer, agent("k"), pb.Capability()]), 1, 64)
        assert taken.abilities.can(("agent", "k"))
        assert [violation.path for violation in taken.ignored] == [
            "hello.capabilities[0]",
            "hello.capabilities[2]",
        ]
        assert {violation.reason for violation in taken.ignored} == {"UNKNOWN_VARIANT"}

    def test_known_capabilities_are_passed_on_as_they_are(self):
        known = [agent("k"), tool()]
        assert without_unknown(known, "x") == (known, [])


class TestAttempts:
    def test_refs_are_passed_on(self):
        accepted = pb.Accepted(attempts=[ref("r/a"), ref("r/b", 3)])
        assert list(check_attempts(accepted)) == [ref("r/a"), ref("r/b", 3)]
        check_attempt(ref("r/a"), "x")

    def test_what_is_no_attempt_is_refused(self):
        assert refused(check_attempts, pb.Accepted(attempts=[pb.AttemptRef()])).path == (
            "accepted.attempts[0]"
        )
        assert refused(check_attempt, ref("r/a", 0), "reject.attempt").path == "reject.attempt"


def succeeded(task_id, text="", **more):
    output = value_pb2.Value(text=text)
    result = task_pb2.TaskResult(tool=transition_pb2.ToolResult(output=output, **more))
    return pb.AttemptOutcome(task_id=task_id, attempt=1, succeeded=result)


def taken_outcomes(*outcomes, limit=1_000):
    results = pb.Results(outcomes=outcomes)
    return check_outcomes(results, results.ByteSize(), limit)


class TestOutcomes:
    def test_good_ones_are_passed_on_without_a_copy(self):
        results = pb.Results(outcomes=[succeeded("r/a", "x"), succeeded("r/b", "y")])
        taken = check_outcomes(results, results.ByteSize(), 1_000)
        assert taken.items is results.outcomes
        assert list(taken.rejects) == []

    def test_an_outcome_without_an_attempt_refuses_the_frame(self):
        violation = refused(taken_outcomes, succeeded("r/a"), pb.AttemptOutcome(task_id="r/b"))
        assert violation.path == "results.outcomes[1]"

    def test_an_outcome_of_an_unknown_kind_fails_its_attempt_alone(self):
        newer = pb.AttemptOutcome(task_id="r/b", attempt=7)
        newer.MergeFromString(NEWER)
        taken = taken_outcomes(succeeded("r/a"), newer)
        assert taken.items[0] == succeeded("r/a")
        assert (taken.items[1].task_id, taken.items[1].attempt) == ("r/b", 7)
        failure = taken.items[1].failed.failure
        assert (failure.code, failure.retryable) == ("RESULT_INVALID", False)
        (reject,) = taken.rejects
        assert (reject.attempt, reject.reason) == (ref("r/b", 7), "RESULT_INVALID")

    def test_a_value_that_is_too_large_fails_its_attempt_alone_with_limit_and_size(self):
        taken = taken_outcomes(succeeded("r/a", "x" * 1_000), succeeded("r/b", "é" * 501))
        assert taken.items[0].WhichOneof("outcome") == "succeeded"
        failure = taken.items[1].failed.failure
        assert failure.code == "PAYLOAD_TOO_LARGE"
        assert failure.category == failure_pb2.FAILURE_CATEGORY_LIMIT
        assert failure.HasField("retryable")
        assert not failure.retryable
        assert failure.details == {
            "field": "succeeded.tool.output.text",
            "limit_bytes": "1000",
            "size_bytes": "1002",
        }
        assert taken.rejects[0].field == "succeeded.tool.output.text"

    def test_many_small_values_are_not_one_large_one(self):
        blocks = [{"text": {"text": "x" * 900}} for _ in range(5)]
        assert list(taken_outcomes(succeeded("r/a", content=blocks)).rejects) == []

    def test_a_value_is_found_in_lists_and_maps(self):
        content = [{"text": {"text": "ok"}}, {"image": {"blob": {"data": b"x" * 1_001}}}]
        failure = taken_outcomes(succeeded("r/a", content=content)).items[0].failed.failure
        assert failure.details["field"] == "succeeded.tool.content.image.blob.data"
        details = {"a": "b", "c": "x" * 1_001}
        failed = pb.AttemptOutcome.Failed(failure=failure_pb2.Failure(details=details))
        outcome = pb.AttemptOutcome(task_id="r/a", attempt=1, failed=failed)
        failure = taken_outcomes(outcome).items[0].failed.failure
        assert failure.details["field"] == "failed.failure.details"


class TestProgress:
    def test_good_items_are_passed_on_without_a_copy(self):
        text = task_pb2.TaskProgress(text=task_pb2.TaskProgress.TextDelta(text="a"))
        alive = pb.AttemptProgress(task_id="r/b", attempt=1)
        report = pb.ProgressReport(
            items=[pb.AttemptProgress(task_id="r/a", attempt=1, progress=[text, text]), alive]
        )
        taken = check_progress(report, report.ByteSize())
        assert taken.items is report.items
        assert list(taken.rejects) == []

    def test_an_item_without_an_attempt_refuses_the_frame(self):
        report = pb.ProgressReport(items=[pb.AttemptProgress(task_id="x", attempt=1)])
        assert refused(check_progress, report, 9).path == "progress.items[0]"

    def test_progress_of_an_unknown_kind_is_rejected_alone(self):
        newer = task_pb2.TaskProgress.FromString(NEWER)
        alive = pb.AttemptProgress(task_id="r/b", attempt=1)
        bad = pb.AttemptProgress(task_id="r/a", attempt=2, progress=[newer])
        taken = check_progress(pb.ProgressReport(items=[bad, alive]), 9)
        assert list(taken.items) == [alive]
        (reject,) = taken.rejects
        assert (reject.attempt, reject.reason) == (ref("r/a", 2), "UNKNOWN_VARIANT")
        assert reject.field == "progress[0]"

    def test_custom_progress_is_at_most_64_kib(self):
        def item(size):
            value = value_pb2.Value(text="x" * size)
            custom = task_pb2.TaskProgress(custom=task_pb2.TaskProgress.Custom(value=value))
            return pb.AttemptProgress(task_id="r/a", attempt=1, progress=[custom])

        report = pb.ProgressReport(items=[item(65_000), item(66_000)])
        taken = check_progress(report, report.ByteSize())
        assert len(taken.items) == 1
        assert taken.rejects[0].reason == "PAYLOAD_TOO_LARGE"
