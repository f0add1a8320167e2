"""Groups of inputs at one node: any, all, both kinds at once, and what a node sees of the messages."""

from __future__ import annotations

import pytest

from stepgraph.v1.graph_pb2 import GraphEdge
from tests.shapes.stage import fails, said, shape


async def test_feedback_enters_a_node_again_until_it_says_stop(stage):
    run = await stage.play(
        "group_feedback",
        {"a": ["red"], "b": ["CONTINUE", "CONTINUE", "STOP"], "c": ["green", "blue"], "e": ["rgb"]},
    )

    assert run.path == ["a", "b", "c", "b", "c", "b", "e"]
    assert (run.status, run.end) == ("COMPLETED", "e")


async def test_feedback_ends_at_ten_messages(stage):
    run = await stage.play(
        "group_feedback", {"a": ["one"], "b": "CONTINUE", "c": "more", "e": ["enough"]}
    )

    assert run.counts == {"a": 1, "b": 5, "c": 4, "e": 1}
    assert len(run.conversation) == 11, "ten, and the sum of them"


async def test_what_two_say_at_once_enters_a_node_once(stage):
    run = await stage.play(
        "group_any",
        {
            "a": ["split"],
            "b": ["PROCESS", "DONE"],
            "c1": ["sea C1_COMPLETE"],
            "c2": ["sky C2_COMPLETE"],
            "e": ["sum"],
        },
    )

    assert run.path == ["a", "b", "c1 c2", "b", "e"]
    assert run.variables["parts"] == ["sea C1_COMPLETE", "sky C2_COMPLETE"]
    assert run.followed("c1.b") == run.followed("c2.b") == 1


@pytest.mark.parametrize(
    ("c1", "c2", "after"),
    [
        ("sea C1_COMPLETE", "no idea", ["b dropped", "e"]),
        ("no idea", "no idea", ["dropped"]),
    ],
)
async def test_what_is_not_complete_is_dropped_and_holds_nobody_up(stage, c1, c2, after):
    is_told = len(after) == 2
    run = await stage.play(
        "group_any",
        {
            "a": ["split"],
            "b": ["PROCESS", "DONE"][: 1 + is_told],
            "c1": [c1],
            "c2": [c2],
            "e": ["sum"][:is_told],
        },
    )

    assert run.path == ["a", "b", "c1 c2", *after]
    assert run.status == "COMPLETED"
    assert run.end == ("e" if is_told else "")


async def test_what_comes_late_enters_the_node_again(stage):
    graph = shape("group_any")
    graph.nodes.add(id="c2_check").action.assign.SetInParent()
    next(
        edge for edge in graph.edges if (edge.source, edge.target) == ("c2", "b")
    ).target = "c2_check"
    graph.edges.append(GraphEdge(source="c2_check", target="b"))

    run = await stage.play(
        "group_any",
        {
            "a": ["split"],
            "b": ["PROCESS", "PROCESS", "DONE"],
            "c1": ["1 C1_COMPLETE", "no idea"],
            "c2": ["2 C2_COMPLETE", "no idea"],
            "e": ["sum"],
        },
        graph=graph,
    )

    # `b` has sent both off again when the late one arrives; then it says that it is done.
    assert run.path == ["a", "b", "c1 c2", "b c2_check", "b c1 c2", "e"]
    assert run.counts["b"] == 3


@pytest.mark.parametrize(
    ("ways", "path"),
    [
        (["a", "b"], ["begin", "a b", "both", "d"]),
        (["c"], ["begin", "c", "either", "d"]),
        (["a", "b", "c"], ["begin", "a b c", "both either", "d"]),
        (["a"], ["begin", "a", "both", "d"]),
    ],
)
async def test_one_node_runs_for_all_of_one_group_or_any_of_another(stage, ways, path):
    script = {way: [f"{way} is done"] for way in ways}

    run = await stage.play("group_mixed", {**script, "d": ["done"]}, variables={"ways": ways})

    assert run.path == path
    assert run.counts == {**dict.fromkeys(ways, 1), "d": 1}
    assert (run.status, run.end) == ("COMPLETED", "d")


async def test_no_way_at_all_is_a_dead_end(stage):
    run = await stage.play("group_mixed", {}, variables={"ways": []})

    assert (run.status, run.failure) == ("FAILED", "DEAD_END")


async def test_the_last_reviewer_waits_for_both_editors(stage):
    run = await stage.play(
        "group_editors",
        {"writer": ["text"], "editor1": ["grammar!"], "editor2": ["style!"], "final": ["fine"]},
        messages=["climate"],
    )

    assert run.path == ["writer", "editor1 editor2", "final"]
    assert said(run.asked["final"][0].messages[-1]) == "user: grammar: grammar!\nstyle: style!"
    assert run.conversation == [
        *("user: climate", "assistant: text"),
        *("user: grammar: grammar!\nstyle: style!", "assistant: fine"),
    ]


async def test_an_editor_that_fails_fails_the_run_and_nobody_reviews(stage):
    run = await stage.play(
        "group_editors", {"writer": ["text"], "editor1": ["grammar!"], "editor2": [fails("ILL")]}
    )

    assert (run.status, run.failure) == ("FAILED", "ILL")
    assert "final" not in run.counts


async def test_the_summariser_sees_the_first_and_the_last_message(stage):
    run = await stage.play(
        "group_view",
        {
            "generator": ["roses", "roses, and a pond"],
            "reviewer": ["no water", "APPROVE"],
            "summariser": ["a pond"],
        },
        messages=["A garden"],
    )

    assert run.path == [*("generator", "reviewer") * 2, "summariser"]
    seen = [said(message) for message in run.asked["summariser"][0].messages]
    assert seen == ["user: A garden", "assistant: APPROVE"]


async def test_the_loop_ends_at_ten_messages(stage):
    run = await stage.play(
        "group_view",
        {"generator": "ideas", "reviewer": "more", "summariser": ["that is it"]},
        messages=["A garden"],
    )

    # One of the user's and two for each round: the fifth round is the first that ends with ten or more.
    assert run.counts == {"generator": 5, "reviewer": 5, "summariser": 1}
