"""One topic: searches in rounds that are counted, and a summary that is tried with less and less to read."""

from __future__ import annotations

from stepgraph_testing import call, calls
from tests.shapes.stage import fails


async def test_what_is_too_long_is_compressed_with_less_to_read(stage):
    too_long = fails("REQUEST_TOO_LARGE")
    run = await stage.play(
        "researcher",
        {
            "look": ["much"],
            "compress": [too_long],
            "compress_less": [too_long],
            "compress_least": ["little"],
        },
        input={"topic": "heat pumps"},
    )

    assert run.path == ["begin", "look", "compress", "compress_less", "compress_least", "done"]
    assert run.conversation[-1] == "assistant: little"


async def test_what_can_not_be_compressed_is_given_as_it_is(stage):
    too_long = fails("REQUEST_TOO_LARGE")
    run = await stage.play(
        "researcher",
        {
            "look": ["much"],
            **{name: [too_long] for name in ("compress", "compress_less", "compress_least")},
        },
        input={"topic": "heat pumps"},
    )

    assert (run.status, run.end) == ("COMPLETED", "done")
    assert run.run.state.state.last_result.text == "much"


async def test_a_researcher_searches_ten_rounds_at_most(stage):
    run = await stage.play(
        "researcher",
        {"look": calls(call("search", query="more")), "search": "found", "compress": ["short"]},
        input={"topic": "heat pumps"},
        tools=("search",),
    )

    assert run.counts == {"look": 11, "search": 10, "compress": 1}
    assert run.path[-2:] == ["compress", "done"]
