"""What is different in a fork."""

from __future__ import annotations

from stepgraph.v1.run_service_pb2 import ForkChange
from stepgraph.v1.task_pb2 import TaskResult
from stepgraph_client import another_answer, another_result, another_state, revise


def test_an_answer_is_for_the_activation_that_asks() -> None:
    """Not for an interrupt: its id is another one in the fork."""
    change = another_answer("4/approve", revise("smaller"))
    assert change.answer.activation_id == "4/approve"
    assert change.answer.answer.revise.feedback == "smaller"


def test_a_result_is_a_tools_unless_it_says_more() -> None:
    """Python values become the tool's output; a TaskResult is taken as it is."""
    change = another_result("2/price/t0/e0", {"eur": 12}, is_error=True)
    assert change.result.task_id == "2/price/t0/e0"
    assert change.result.result.tool.output.json == '{"eur":12}'
    assert change.result.result.tool.is_error
    agent = TaskResult(agent=TaskResult.Agent(output={"text": "done"}))
    assert another_result("t", agent).result.result == agent


def test_a_state_says_only_what_changes() -> None:
    """What is not named stays as it is."""
    change = another_state({"x": 1}, delete=["y"], messages=["and now?"], paradigm="bold")
    update = change.patch.update
    assert update.variables["x"].json == "1"
    assert list(update.delete_variables) == ["y"]
    assert update.messages[0].content[0].text.text == "and now?"
    assert update.paradigm == "bold"
    assert another_state() == ForkChange(patch=ForkChange.Patch(update={}))
    assert not another_state().patch.update.HasField("paradigm")
