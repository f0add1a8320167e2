"""A state comes in pages that together are all of it, once."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2, run_service_pb2, state_pb2, value_pb2
from stepgraph_server.api.state_pages import state_page
from tests.support.standins import StateStandIn


def message(text):
    return conversation_pb2.Message(role=2, content=[{"text": {"text": text}}])


def state(messages=(), variables=None, **fields):
    return StateStandIn(
        sequence=9,
        messages=[message(text) for text in messages],
        variables={name: value_pb2.Value(text=text) for name, text in (variables or {}).items()},
        active_paradigm="plan",
        **fields,
    )


def pages(of, limit=200, max_bytes=10_000):
    start, found = 0, []
    while start is not None:
        response, start = state_page(of, start=start, limit=limit, max_bytes=max_bytes)
        found.append(response)
    return found


def texts(response):
    return (
        [m.content[0].text.text for m in response.state.conversation.messages],
        {name: value.text for name, value in response.state.variables.items()},
    )


def test_a_small_state_is_one_page():
    [page] = pages(state(["m1", "m2"], {"b": "2", "a": "1"}))

    assert page.sequence == 9
    assert page.state.active_paradigm == "plan"
    assert texts(page) == (["m1", "m2"], {"a": "1", "b": "2"})


def test_messages_come_first_then_variables_by_name():
    found = pages(state(["m1", "m2", "m3"], {"c": "3", "a": "1", "b": "2"}), limit=2)

    assert [texts(page) for page in found] == [
        (["m1", "m2"], {}),
        (["m3"], {"a": "1"}),
        ([], {"b": "2", "c": "3"}),
    ]
    assert [page.state.active_paradigm for page in found] == ["plan", "", ""]
    assert {page.sequence for page in found} == {9}


def test_a_page_is_cut_by_bytes_and_what_is_too_large_stands_alone():
    found = pages(state(["x" * 600, "y" * 2_000, "z", "w"]), max_bytes=1_000)

    assert [[text[:1] for text in texts(page)[0]] for page in found] == [["x"], ["y"], ["z", "w"]]


def test_an_empty_state_is_one_page():
    [page] = pages(state())

    assert texts(page) == ([], {})
    assert page.HasField("state")
    assert not page.HasField("result")


def test_the_result_and_the_live_activations_are_on_the_first_page_only():
    of = state(
        ["m1", "m2"],
        live=[run_service_pb2.ActivationState(activation_id="1/a", node_id="a", ended=True)],
        ended=state_pb2.GraphExecutionResult(name="g", completed=True),
    )

    first, second = pages(of, limit=1)

    assert first.result.completed
    assert [a.activation_id for a in first.activations] == ["1/a"]
    assert not second.HasField("result")
    assert not second.activations


@pytest.mark.parametrize("count", [3, 50])
def test_activations_beyond_the_room_are_listed_bare(count):
    live = [
        run_service_pb2.ActivationState(
            activation_id=f"1/a/t0/s{n}",
            node_id="a",
            carried={"last_result": {"text": "x" * 400}},
        )
        for n in range(count)
    ]

    [page] = pages(state(live=live), max_bytes=4_000)

    assert len(page.activations) == count
    assert page.activations[0].HasField("carried")
    assert page.activations[-1].HasField("carried") is (count == 3)
    assert page.ByteSize() < 4_000
