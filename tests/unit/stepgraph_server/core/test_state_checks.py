from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from stepgraph.v1 import conversation_pb2, failure_pb2, state_pb2, value_pb2
from stepgraph_server.core.state_checks import check_failure, check_state, trim_failure

if TYPE_CHECKING:
    from stepgraph_server.core import state_checks


def paths(found: list[state_checks.Violation]) -> list[tuple[str, str]]:
    return [(violation.path, violation.reason) for violation in found]


class TestStates:
    def test_an_empty_state_passes(self) -> None:
        assert check_state(state_pb2.GraphState(), "s") == []

    def test_a_full_state_passes(self) -> None:
        state = state_pb2.GraphState(
            conversation=conversation_pb2.Conversation(
                messages=[conversation_pb2.Message(role=conversation_pb2.ROLE_USER)]
            ),
            variables={"_approval": value_pb2.Value(text="proceed")},
            last_result=value_pb2.Value(),
            last_error=failure_pb2.Failure(code="TOOL_ERROR"),
            metadata={"a": "b"},
            parsed_decision=state_pb2.GraphDecision(
                direct_answer=state_pb2.GraphDecision.DirectAnswer()
            ),
            active_paradigm="plan",
        )
        assert check_state(state, "s") == []

    def test_everything_that_is_wrong_is_found(self) -> None:
        many = {str(index): "" for index in range(65)}
        state = state_pb2.GraphState(
            conversation=conversation_pb2.Conversation(
                messages=[conversation_pb2.Message()], metadata=many
            ),
            variables={"a": value_pb2.Value()},
            last_result=value_pb2.Value(json="{"),
            last_error=failure_pb2.Failure(code="bad"),
            metadata=many,
            parsed_decision=state_pb2.GraphDecision(),
            active_paradigm="a b",
        )
        assert paths(check_state(state, "s")) == [
            ("s.variables.a", "UNKNOWN_VARIANT"),
            ("s.conversation.messages[0].role", "INVALID_REQUEST"),
            ("s.conversation.metadata", "LIMIT_EXCEEDED"),
            ("s.metadata", "LIMIT_EXCEEDED"),
            ("s.last_result", "JSON_INVALID"),
            ("s.last_error.code", "INVALID_REQUEST"),
            ("s.parsed_decision", "UNKNOWN_VARIANT"),
            ("s.active_paradigm", "INVALID_REQUEST"),
        ]


class TestFailures:
    def test_a_report_passes(self) -> None:
        failure = failure_pb2.Failure(
            code="RATE_LIMITED",
            payload=value_pb2.Value(),
            causes=[failure_pb2.Failure(code="HTTP")],
        )
        assert check_failure(failure, "f") == []

    @pytest.mark.parametrize(
        ("failure", "found"),
        [
            (failure_pb2.Failure(), ("f.code", "INVALID_REQUEST")),
            (
                failure_pb2.Failure(code="HTTP", category=99),  # type: ignore[arg-type]
                ("f.category", "UNKNOWN_VARIANT"),
            ),
            (
                failure_pb2.Failure(code="HTTP", payload=value_pb2.Value(json="")),
                ("f.payload", "JSON_INVALID"),
            ),
            (
                failure_pb2.Failure(code="HTTP", causes=[failure_pb2.Failure(code="no")]),
                ("f.causes[0].code", "INVALID_REQUEST"),
            ),
        ],
        ids=count(),
    )
    def test_what_is_wrong_is_found(
        self, failure: failure_pb2.Failure, found: tuple[str, str]
    ) -> None:
        assert paths(check_failure(failure, "f")) == [found]


class TestTrimming:
    def test_what_keeps_the_limits_stays_as_it_is(self) -> None:
        failure = failure_pb2.Failure(
            code="HTTP",
            category=failure_pb2.FAILURE_CATEGORY_TECHNICAL,
            retryable=False,
            message="é" * 100,
            source="e1",
            details={"a": "b"},
            causes=[failure_pb2.Failure(code="INNER")],
            payload=value_pb2.Value(text="x"),
        )
        assert trim_failure(failure) == failure

    def test_absent_stays_absent(self) -> None:
        trimmed = trim_failure(failure_pb2.Failure(code="HTTP"))
        assert not trimmed.HasField("retryable")
        assert not trimmed.HasField("payload")

    def test_long_texts_are_cut_with_a_mark(self) -> None:
        trimmed = trim_failure(
            failure_pb2.Failure(
                message="é" * 10_000, source="s" * 2_000, details={"k" * 2_000: "v" * 2_000}
            )
        )
        assert len(trimmed.message.encode()) <= 8 * 1024
        assert trimmed.message.endswith("(cut)")
        ((key, detail),) = trimmed.details.items()
        assert max(map(len, (key, detail, trimmed.source))) <= 1024

    def test_surplus_details_and_causes_are_left_out(self) -> None:
        causes = [failure_pb2.Failure(code=f"C{index}") for index in range(12)]
        details = {f"k{index:02}": "" for index in range(40)}
        trimmed = trim_failure(failure_pb2.Failure(details=details, causes=causes))
        assert [cause.code for cause in trimmed.causes] == [f"C{index}" for index in range(10)]
        assert sorted(trimmed.details) == [f"k{index:02}" for index in range(32)]

    def test_causes_are_followed_ten_deep(self) -> None:
        failure = failure_pb2.Failure(code="C0")
        for index in range(1, 15):
            failure = failure_pb2.Failure(code=f"C{index}", causes=[failure])
        codes = []
        trimmed = trim_failure(failure)
        while trimmed.causes:
            trimmed = trimmed.causes[0]
            codes.append(trimmed.code)
        assert codes == [f"C{index}" for index in range(13, 3, -1)]
