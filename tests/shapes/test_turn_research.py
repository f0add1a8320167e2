"""A chat over several runs: each turn goes on from the one before, and the last one does research."""

from __future__ import annotations

import asyncio

import pytest

from tests.shapes.stage import fails

QUESTIONS = [
    *(
        "What is it about?",
        "For whom is it?",
        "How deep should it go?",
        "What do you know already?",
    ),
]
ANSWERS = ["bridges", "pupils", "not very", "nothing"]

POLISHED = {
    "topic": ["bridges for pupils"],
    **{f"polish_{number}": [f"polished {number}"] for number in range(4)},
}
RESEARCH = {
    **POLISHED,
    "sub_topics": [{"parts": ["arches", "cables"]}],
    "broad": [{"broad": ["bridge", "river"]}],
    "broader": [{"broader": ["road"]}],
    "narrow": [{"narrow": []}],
    "narrower": [{"narrower": ["bolt", "nut"]}],
    "search": lambda asked: f"about {asked['keyword']}",
    **{it: [f"the {it}"] for it in ("outline", "introduction", "body", "conclusion", "title")},
}


async def asked_four_times(stage):
    """Play the first four turns; return the last run."""
    run = None
    for number, said in enumerate(["hello", *ANSWERS[:3]]):
        before = {"continue_from": run.run_id} if run else {}
        run = await stage.play("turn_research", {}, input=said, **before)
        assert run.variables["reply"] == QUESTIONS[number]
        assert run.end == "asked"
        assert run.path[-2:] == [f"ask_{number}", "asked"]
    return run


async def test_four_turns_ask_and_the_fifth_does_research(stage):
    before = await asked_four_times(stage)

    run = await stage.play("turn_research", RESEARCH, input=ANSWERS[3], continue_from=before.run_id)

    assert run.path == [
        *("turn", "keep", "polish_0 polish_1 polish_2 polish_3 topic working", "gate"),
        *("sub_topics", "broad narrow", "broader narrower", "keywords"),
        *("search_broad", "search_broader", "search_narrow", "search_narrower"),
        *("outline", "introduction", "body", "conclusion", "title", "final"),
    ]
    assert run.variables["answers"] == ANSWERS
    assert run.variables["found_broad"] == ["about bridge", "about river"]
    assert run.variables["found_narrow"] == []
    assert run.counts["search"] == 5
    assert run.variables["reply"] == "the title\nthe introduction\nthe body\nthe conclusion"
    assert (run.status, run.end) == ("COMPLETED", "final")


async def test_watchers_see_the_first_reply_while_the_others_work(stage):
    before = await asked_four_times(stage)
    seen = asyncio.Event()

    async def polish(_):
        await seen.wait()
        return ""

    live = await stage.begin(
        "turn_research",
        {"topic": ["bridges"], **{f"polish_{number}": polish for number in range(4)}},
        input=ANSWERS[3],
        continue_from=before.run_id,
    )
    node = await live.completed("working")
    assert node.update.variables["reply"].text == "I am working on it."
    seen.set()
    run = await live.over()

    assert run.path[-1] == "incomplete", "the gate lets nothing through that is empty"


@pytest.mark.parametrize("failing", ["bridge", "road"])
async def test_a_search_that_fails_is_left_out_of_its_list(stage, failing):
    def search(asked):
        return fails("DOWN") if asked["keyword"] == failing else f"about {asked['keyword']}"

    before = await asked_four_times(stage)
    run = await stage.play(
        "turn_research",
        {**RESEARCH, "search": search},
        input=ANSWERS[3],
        continue_from=before.run_id,
    )

    found = [run.variables[f"found_{it}"] for it in ("broad", "broader", "narrow", "narrower")]
    whole = [["bridge", "river"], ["road"], [], ["bolt", "nut"]]
    assert found == [[f"about {it}" for it in part if it != failing] for part in whole]
    assert run.end == "final"


async def test_a_part_that_is_missing_in_the_end_is_no_report(stage):
    before = await asked_four_times(stage)
    run = await stage.play(
        "turn_research",
        {**RESEARCH, "body": [""], "conclusion": ["the end"]},
        input=ANSWERS[3],
        continue_from=before.run_id,
    )

    assert (run.status, run.end) == ("COMPLETED", "incomplete")
    assert run.variables["reply"] == "Something is missing, so there is no report."


async def test_a_polisher_that_fails_fails_the_turn_and_not_the_chat(stage):
    before = await asked_four_times(stage)
    start = {"input": ANSWERS[3], "continue_from": before.run_id}
    broken = await stage.play("turn_research", {**POLISHED, "polish_2": [fails("DOWN")]}, **start)

    assert (broken.status, broken.failure) == ("FAILED", "DOWN")

    again = await stage.play("turn_research", RESEARCH, **start)
    assert again.end == "final", "the turn before is still there to go on from"
