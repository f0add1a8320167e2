"""Numbers and durations: policies, limits, and what is in range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core import policies
from stepgraph_server.core.instants import seconds_text
from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.texts import check_codes

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from stepgraph.v1.policy_pb2 import RetryPolicy
    from stepgraph_server.core.validation.report import Report

MAX_TRIES: Final = 1_000


def check_retry(
    report: Report, path: str, policy: RetryPolicy, above: policies.RetryPolicy
) -> None:
    """Check what one level says about retries; `above` is what holds without it. Durations are checked with the shape."""
    if policy.HasField("max_tries") and not 1 <= policy.max_tries <= MAX_TRIES:
        message = f"must be from 1 to {MAX_TRIES}, not {policy.max_tries}"
        report.problem(ProblemCode.OUT_OF_RANGE, f"{path}.max_tries", message, "1 means no retry.")
    # A number that is none compares false, and is reported with the shape.
    if policy.HasField("factor") and policy.factor < 1:
        message = f"must be at least 1, not {policy.factor:g}"
        report.problem(ProblemCode.OUT_OF_RANGE, f"{path}.factor", message, "1 means equal delays.")
    if policy.HasField("jitter") and (policy.jitter < 0 or policy.jitter > 1):
        message = f"must be from 0 to 1, not {policy.jitter:g}"
        report.problem(
            ProblemCode.OUT_OF_RANGE, f"{path}.jitter", message, "0.2 means plus or minus 20 %."
        )
    check_codes(report, f"{path}.retryable_codes", policy.retryable_codes)
    check_codes(report, f"{path}.non_retryable_codes", policy.non_retryable_codes)
    _check_delays(report, path, policy, above)


def _check_delays(
    report: Report, path: str, policy: RetryPolicy, above: policies.RetryPolicy
) -> None:
    says_first, says_longest = policy.HasField("first_delay"), policy.HasField("max_delay")
    resolved = policies.resolve_retry(above, policy)
    if (says_first or says_longest) and resolved.first_delay > resolved.max_delay:
        report.warning(
            WarningCode.RETRY_DELAY_CAPPED,
            f"{path}.first_delay" if says_first else f"{path}.max_delay",
            f"the first delay, {seconds_text(resolved.first_delay)}, is cut to the longest, "
            f"{seconds_text(resolved.max_delay)}",
            "Set max_delay to the first delay or more.",
        )


def check_positive(report: Report, path: str, duration: Duration, hint: str) -> None:
    """Check a duration for which zero makes no sense. What is negative is reported with the shape."""
    if duration.seconds == 0 and duration.nanos == 0:
        report.problem(ProblemCode.OUT_OF_RANGE, path, "must be longer than 0", hint)
