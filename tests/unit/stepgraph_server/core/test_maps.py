"""Map: what can't be mapped, and what the results are together. The scenarios play it in a run."""

from __future__ import annotations

import pytest
from google.protobuf.json_format import ParseDict

from stepgraph.v1 import task_pb2
from stepgraph_server.core.inputs import RunLimits
from tests.support.core_pieces import compiled, started, succeeded, world


def _map(items: str, body: str = "{program: p}") -> str:
    return f"nodes:\n  - {{id: a, map: {{items: {items!r}, body: {body}}}}}\n"


@pytest.mark.parametrize(
    ("items", "gave"),
    [
        ("{'a': 1}", "an object"),
        ("'x'", "a string"),
        ("true", "a boolean"),
        ("null", "null"),
        ("3", "a number"),
    ],
)
def test_what_is_no_list_is_said(items: str, gave: str) -> None:
    run = started(
        compiled(f'nodes:\n  - {{id: a, map: {{items: "{items}", body: {{program: p}}}}}}\n')
    )
    assert run.state.failure is not None
    assert run.state.failure.code == "EXPRESSION_FAILED"
    assert run.state.failure.message.endswith(f"and gave {gave}")


def test_items_that_are_too_large_together_are_refused_before_anything_begins() -> None:
    played = world()
    played.limits = RunLimits(max_bytes_per_decision=100)
    run = started(compiled(_map("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]")), played)
    assert run.state.failure is not None
    assert run.state.failure.code == "PAYLOAD_TOO_LARGE"
    assert not run.state.spawned


def test_results_that_are_too_large_together_fail_the_node() -> None:
    played = world()
    played.limits = RunLimits(max_inline_value_bytes=40)
    body = "  - {id: w, tool_call: {tool_name: t, args_template: '{}'}}\n"
    run = started(compiled(_map("[1, 2]", "{node_id: w}") + body), played)
    result = ParseDict({"tool": {"output": {"text": "x" * 30}}}, task_pb2.TaskResult())
    for index in range(2):
        run.happen(succeeded(f"1/a/t0/s{index}/t0/e0", result))
    assert run.state.failure is not None
    assert run.state.failure.code == "PAYLOAD_TOO_LARGE"
    assert "reference" in run.state.failure.message


def test_the_items_are_recorded_and_not_evaluated_again() -> None:
    run = started(compiled(_map("[1, 'b']")))
    (recorded,) = [event.task_completed for event in run.events if event.HasField("task_completed")]
    specs = recorded.result.step.transition.spawn.specs
    assert [spec.input.WhichOneof("kind") for spec in specs] == ["json", "text"]
    assert recorded.attempt == 0
