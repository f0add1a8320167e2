"""What is reported in the place of a result that the server could not take."""

from __future__ import annotations

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph.v1 import failure_pb2, llm_pb2, task_pb2, value_pb2
from stepgraph_client._outcomes import Limits, fitting, refused


def outcome(*texts):
    content = [{"text": {"text": text}} for text in texts]
    response = llm_pb2.LlmResponse(message={"content": content})
    return pb.AttemptOutcome(
        task_id="r/a", attempt=2, succeeded=task_pb2.TaskResult(llm=response)
    ).SerializeToString()


def failure_in(data):
    result = pb.AttemptOutcome.FromString(data)
    assert (result.task_id, result.attempt) == ("r/a", 2)
    assert not result.failed.failure.retryable
    assert result.failed.failure.HasField("retryable")
    return result.failed.failure


def test_what_fits_stays_as_it_is():
    data = outcome("x" * 100, "y" * 100)
    assert fitting(data, Limits(max_inline_value_bytes=100)) is data


def test_a_value_above_the_limit_is_a_failure_with_limit_and_size():
    failure = failure_in(fitting(outcome("x", "é" * 51), Limits(max_inline_value_bytes=100)))
    assert failure.code == "PAYLOAD_TOO_LARGE"
    assert failure.category == failure_pb2.FAILURE_CATEGORY_LIMIT
    assert failure.details == {
        "field": "succeeded.llm.message.content.text.text",
        "limit_bytes": "100",
        "size_bytes": "102",
    }
    assert "102 bytes, of at most 100" in failure.message


def test_an_outcome_above_the_frame_is_a_failure_though_no_value_is_too_large():
    data = outcome(*["x" * 90] * 20)
    limits = Limits(max_inline_value_bytes=100, max_frame_bytes=1_000)
    failure = failure_in(fitting(data, limits))
    assert failure.details["field"] == "outcome"
    assert failure.details["size_bytes"] == str(len(data))


def test_bytes_and_maps_are_looked_at():
    limits = Limits(max_inline_value_bytes=100)
    failed = pb.AttemptOutcome.Failed(
        failure=failure_pb2.Failure(details={"a": "x" * 101}, payload=value_pb2.Value(text="short"))
    )
    data = pb.AttemptOutcome(task_id="r/a", attempt=2, failed=failed).SerializeToString()
    assert failure_in(fitting(data, limits)).details["field"] == "failed.failure.details"
    blob = value_pb2.Value(blob=value_pb2.Blob(data=b"x" * 101))
    result = task_pb2.TaskResult(effect=task_pb2.TaskResult.Effect(output=blob))
    data = pb.AttemptOutcome(task_id="r/a", attempt=2, succeeded=result).SerializeToString()
    field = failure_in(fitting(data, limits)).details["field"]
    assert field == "succeeded.effect.output.blob.data"


def test_a_refused_frame_makes_its_results_failures():
    reject = pb.Reject(reason="UNKNOWN_VARIANT", message="what is that?", field="x")
    failure = failure_in(refused(outcome("x"), reject))
    assert failure.code == "RESULT_INVALID"
    assert "UNKNOWN_VARIANT: what is that?" in failure.message
    assert failure_in(refused(outcome("x"), pb.Reject(reason="PAYLOAD_TOO_LARGE"))).code == (
        "PAYLOAD_TOO_LARGE"
    )
