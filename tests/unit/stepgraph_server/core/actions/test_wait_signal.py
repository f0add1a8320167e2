"""WaitSignal: what it waits for, and what it gives."""

from __future__ import annotations

from stepgraph_server.core.inputs import Signal
from tests.support.core_pieces import compiled, started, text


def test_its_correlation_is_a_template() -> None:
    """Read when the wait begins."""
    run = started(
        compiled(
            "nodes:\n"
            "  - {id: a, assign: {set: {order: '\"o-7\"'}}}\n"
            "  - {id: b, wait_signal: {name: paid, correlation: 'order {{order}}'}}\n"
            "edges: [{from: a, to: b}]"
        )
    )
    [question] = run.state.questions.values()
    assert question.interrupt.reason.signal.correlation == "order o-7"


def test_a_name_that_is_not_there_fails_the_node() -> None:
    """As in every template."""
    run = started(
        compiled("nodes: [{id: a, wait_signal: {name: paid, correlation: '{{missing}}'}}]")
    )
    assert run.state.failure is not None
    assert run.state.failure.code == "TEMPLATE_FAILED"


def test_one_signal_gives_its_payload_and_several_a_list() -> None:
    """In the order in which they came."""
    one = started(compiled("nodes: [{id: a, wait_signal: paid, output: x}]"))
    one.happen(Signal(name="paid", payload=text("5")))
    assert one.state.variables["x"].text == "5"
    two = started(compiled("nodes: [{id: a, wait_signal: {name: paid, count: 2}, output: x}]"))
    two.happen(Signal(name="paid", payload=text("5")))
    two.happen(Signal(name="paid", payload=text("6")))
    assert two.state.variables["x"].json == '["5","6"]'
