"""Research in three graphs: runs within runs, three at once, with what is beyond answered and what fails bounded."""

from __future__ import annotations

import asyncio

from stepgraph_testing import call, calls
from tests.shapes.stage import fails, said

GRAPHS = ("researcher", "research_supervisor")


def research(*topics):
    return calls(*[call("research", topic=topic) for topic in topics])


CLEAR = {
    "clarify": [{"is_clear": True}],
    "brief": ["About heat pumps."],
    "report": ["The report."],
}


def look(request):
    """Search once for the topic, then say what there is."""
    if said(request.messages[-1]).startswith("tool:"):
        return "looked"
    return calls(call("search", query=request.messages[0].content[0].text.text))


LOOKED = {"look": look, "search": "found", "compress": lambda r: f"short of {r.messages[0]}"}


async def play(stage, script, **start):
    given = {"input": "Compare heat pumps.", "beside": GRAPHS, "tools": ("search", "think")}
    return await stage.play("deep_research", {**script}, **{**given, **start})


async def test_what_is_not_clear_is_asked_back(stage):
    run = await play(stage, {"clarify": [{"is_clear": False, "question": "For which house?"}]})

    assert run.path == ["clarify", "question"]
    assert run.variables["reply"] == "For which house?"


async def test_topics_are_looked_into_by_runs_of_their_own_until_enough_is_known(stage):
    run = await play(
        stage,
        {
            **CLEAR,
            "lead": [
                calls(call("think", thought="hm"), call("research", topic="cost")),
                research("noise", "space"),
                calls(call("research_complete")),
            ],
            "think": ["thought"],
            **LOOKED,
            "compress": ["cost: low", "noise: some", "space: little"],
        },
    )

    assert run.path == ["clarify", "brief", "supervise", "report"]
    assert run.counts["look"] == 6
    assert sorted(asked["query"] for asked in run.asked["search"]) == ["cost", "noise", "space"]
    assert sorted(run.variables["notes"]) == ["cost: low", "noise: some", "space: little"]
    assert run.variables["reply"] == "The report."
    assert "look" not in [event.node_completed.node_id for event in run.run.history]


async def test_three_of_a_reply_are_looked_into_at_once_and_the_others_told_so(stage):
    together = asyncio.Barrier(3)

    async def wait(_):
        async with asyncio.timeout(10):
            await together.wait()
        return "found"

    seen = []

    def lead(request):
        seen.append([said(message) for message in request.messages])
        return research("a", "b", "c", "d", "e") if len(seen) == 1 else "enough"

    run = await play(stage, {**CLEAR, "lead": lead, **LOOKED, "search": wait, "compress": "short"})

    results = [message for message in seen[1] if message.startswith("tool:")]
    assert results[:3] == ["tool: short"] * 3
    assert len(results) == 5
    assert all("at most 3" in message for message in results[3:])
    assert run.counts["search"] == 3


async def test_if_all_researchers_of_a_round_fail_the_phase_ends_with_the_notes_so_far(stage):
    run = await play(
        stage,
        {
            **CLEAR,
            "lead": [research("a"), research("b", "c")],
            "look": ["known", fails("DOWN"), fails("DOWN")],
            "compress": ["a: known"],
        },
    )

    assert run.end == "report"
    assert "a: known" in run.variables["notes"]


async def test_who_knows_enough_at_once_needs_no_researcher(stage):
    run = await play(stage, {**CLEAR, "lead": ["I know it all."]})

    assert run.path == ["clarify", "brief", "supervise", "report"]
    assert "notes" not in run.variables
    assert (run.status, run.end) == ("COMPLETED", "report")


async def test_what_fails_the_inner_run_fails_the_outer_one_by_the_same_code(stage):
    script = {name: CLEAR[name] for name in ("clarify", "brief")}
    run = await play(stage, {**script, "lead": [fails("DOWN")]})

    assert (run.status, run.failure) == ("FAILED", "DOWN")
    assert run.path == ["clarify", "brief", "supervise"]


async def test_the_inner_run_sees_what_is_mapped_and_nothing_else(stage):
    run = await play(stage, {**CLEAR, "lead": ["I know it all."]}, messages=["Hello."])

    request = run.asked["lead"][0]
    assert [said(message) for message in request.messages] == ["user: About heat pumps."]
