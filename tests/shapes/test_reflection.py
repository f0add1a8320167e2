"""Loops that end by a count: of messages, and of how often an edge was followed."""

from __future__ import annotations

from stepgraph_testing import call, calls
from tests.shapes.stage import fails


async def test_reflection_ends_when_there_are_more_than_six_messages(stage):
    run = await stage.play(
        "reflection",
        {"generate": ["one", "two", "three", "four"], "reflect": ["longer", "deeper", "plainer"]},
        messages=["On small boats"],
    )

    assert run.path == [*("generate", "reflect") * 3, "generate", "done"]
    assert run.conversation == [
        "user: On small boats",
        *("assistant: one", "assistant: longer", "assistant: two", "assistant: deeper"),
        *("assistant: three", "assistant: plainer", "assistant: four"),
    ]
    assert (run.status, run.end) == ("COMPLETED", "done")


async def test_reflection_ends_at_once_if_the_conversation_is_long_already(stage):
    run = await stage.play("reflection", {"generate": ["one"]}, messages=["hm"] * 6)

    assert run.path == ["generate", "done"]
    assert run.skipped == {"reflect"}


async def test_reflexion_ends_when_the_revision_asks_for_nothing_more(stage):
    search = calls(call("search", query="libraries"), call("search", query="towns"))
    run = await stage.play(
        "reflexion",
        {"draft": [search], "search": ["many", "small"], "revise": ["An answer."]},
        tools=("search",),
        messages=["How?"],
    )

    assert run.path == ["draft", "tools", "revise", "done"]
    assert run.asked["search"] == [{"query": "libraries"}, {"query": "towns"}]
    assert run.conversation[-1] == "assistant: An answer."


async def test_reflexion_searches_five_times_more_at_most(stage):
    search = calls(call("search", query="more"))
    run = await stage.play(
        "reflexion", {"draft": search, "search": "found", "revise": search}, tools=("search",)
    )

    assert run.path == ["draft", *("tools", "revise") * 6, "done"]
    assert run.counts == {"draft": 1, "search": 6, "revise": 6}
    assert (run.status, run.end) == ("COMPLETED", "done")


async def test_a_search_that_fails_is_something_the_model_can_revise_by(stage):
    run = await stage.play(
        "reflexion",
        {
            "draft": [calls(call("search", query="x"))],
            "search": [fails("DOWN")],
            "revise": ["Without it."],
        },
        tools=("search",),
    )

    assert run.path == ["draft", "tools", "revise", "done"]
    assert any("DOWN" in message for message in run.conversation)
