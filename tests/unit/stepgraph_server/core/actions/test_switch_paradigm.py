"""SwitchParadigm: the node's paradigm, or the decision's."""

from __future__ import annotations

from stepgraph.v1 import state_pb2
from stepgraph_server.core.actions import poll_action
from stepgraph_server.core.actions.step import Done, Fail, Step
from stepgraph_server.core.state import Carried
from tests.support.core_pieces import compiled, poll_of, state_of

GRAPH = compiled(
    """
paradigms: {quick: {}}
nodes: [{id: a, switch_paradigm: quick}, {id: b, switch_paradigm: {}}]
edges: [{from: a, to: b}]
"""
)


def switched(paradigm: str, call_id: str = "") -> Step:
    decision = state_pb2.GraphDecision(
        switch_paradigm=state_pb2.GraphDecision.SwitchParadigm(paradigm=paradigm, call_id=call_id)
    )
    return poll_action(poll_of(state_of(GRAPH), "b", Carried(decision=decision)))


def test_it_sets_the_paradigm_and_clears_the_decision() -> None:
    assert poll_action(poll_of(state_of(GRAPH), "a")) == Done(paradigm="quick", decides=True)
    assert switched("quick") == Done(paradigm="quick", decides=True)


def test_the_call_that_asked_for_it_gets_its_result() -> None:
    done = switched("quick", "c")
    assert isinstance(done, Done)
    assert done.messages[0].content[0].tool_result.call_id == "c"


def test_an_unknown_paradigm_and_no_decision_are_failures() -> None:
    step = switched("nosuch")
    assert isinstance(step, Fail)
    assert step.failure.code == "PARADIGM_UNKNOWN"
    none = poll_action(poll_of(state_of(GRAPH), "b"))
    assert isinstance(none, Fail)
    assert none.failure.code == "NO_DECISION"
