"""One piece of work for each item of a list that is known at run time only: order, counts, and rounds of it."""

from __future__ import annotations

import asyncio

import pytest

from tests.shapes.stage import fails


def plan(*questions: str) -> dict[str, object]:
    return {"subagents": list(questions)}


def verdict(text: str) -> dict[str, object]:
    return {"verdict": text}


async def test_each_item_has_a_sub_agent_and_the_gate_decides_whether_there_is_more(stage):
    run = await stage.play(
        "subagents",
        {
            "planner": [plan("trees", "shade"), plan("water")],
            "subagent": lambda task: f"found out about {task}",
            "writer": ["half of it", "all of it"],
            "gate": [verdict("more needed"), verdict("sufficient")],
        },
        input="heat",
    )

    assert run.path == [*("planner", "each", "writer", "gate") * 2, "reply"]
    assert sorted(run.asked["subagent"]) == ["shade", "trees", "water"]
    assert run.variables["reports"] == [
        *("found out about trees", "found out about shade", "found out about water")
    ]
    assert run.variables["reply"] == "all of it"
    assert (run.status, run.end) == ("COMPLETED", "reply")


async def test_a_gate_that_always_wants_more_has_five_rounds_more(stage):
    run = await stage.play(
        "subagents",
        {
            "planner": plan("one"),
            "subagent": "found",
            "writer": "text",
            "gate": verdict("more needed"),
        },
        input="x",
    )

    assert run.counts == dict.fromkeys(("planner", "subagent", "writer", "gate"), 6)
    assert run.followed("gate.planner") == 5
    assert run.end == "reply"


async def test_a_plan_without_items_needs_no_sub_agent(stage):
    run = await stage.play(
        "subagents",
        {"planner": [plan()], "writer": ["nothing"], "gate": [verdict("sufficient")]},
        input="x",
    )

    assert run.path == ["planner", "each", "writer", "gate", "reply"]
    assert run.variables["reports"] == []


async def test_a_label_that_is_none_of_the_gate_s_is_a_failed_try_and_then_a_way_of_its_own(stage):
    run = await stage.play(
        "subagents",
        {
            "planner": [plan("one")],
            "subagent": ["found"],
            "writer": ["text"],
            "gate": [verdict("perhaps")] * 3,
        },
        input="x",
    )

    assert (run.status, run.end) == ("COMPLETED", "reply")
    assert run.counts["gate"] == 3
    assert "verdict" not in run.variables


async def test_a_sub_agent_that_fails_fails_its_round_and_stops_the_others(stage):
    async def sub_agent(task: str) -> str:
        if task == "bad":
            raise fails("LOST")
        await asyncio.Event().wait()
        return "never"

    run = await stage.play(
        "subagents",
        {"planner": [plan("good", "bad")], "subagent": sub_agent},
        input="x",
    )

    assert (run.status, run.failure) == ("FAILED", "LOST")
    assert run.path == ["planner", "each"]


async def test_no_more_than_four_work_at_once(stage):
    working, most, four = 0, 0, asyncio.Event()

    async def sub_agent(task: str) -> str:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if working == 4:
            four.set()
        await four.wait()
        await asyncio.sleep(0.01)
        working -= 1
        return task

    items = [f"q{number}" for number in range(12)]
    run = await stage.play(
        "subagents",
        {
            "planner": [plan(*items)],
            "subagent": sub_agent,
            "writer": ["text"],
            "gate": [verdict("sufficient")],
        },
        input="x",
    )

    assert run.variables["reports"] == items
    assert most == 4


@pytest.mark.parametrize("last", ["cats", "dogs", "cows"])
async def test_the_index_that_is_picked_is_right_whoever_was_last(stage, last):
    others, done = 0, asyncio.Event()

    async def joke(request) -> str:
        nonlocal others
        subject = request.messages[-1].content[0].text.text.removesuffix(".").split()[-1]
        if subject == last:
            await done.wait()
        else:
            others += 1
            if others == 2:
                done.set()
        return f"a joke about {subject}"

    run = await stage.play(
        "map_reduce",
        {
            "topics": [{"subjects": ["cats", "dogs", "cows"]}],
            "joke": joke,
            "pick": [{"index": 1}],
        },
        input="animals",
    )

    assert run.path == ["topics", "each", "pick", "best"]
    assert run.variables["jokes"] == [f"a joke about {it}" for it in ("cats", "dogs", "cows")]
    assert run.variables["best"] == "a joke about dogs"


async def test_a_subject_is_all_that_a_joke_is_asked_for(stage):
    run = await stage.play(
        "map_reduce",
        {"topics": [{"subjects": ["cats"]}], "joke": ["meow"], "pick": [{"index": 0}]},
        input="animals",
    )

    request = run.asked["joke"][0]
    assert [m.content[0].text.text for m in request.messages] == ["Tell a joke about cats."]


@pytest.mark.parametrize("subjects", [[], ["cats"]])
async def test_an_index_that_there_is_not_fails_where_it_is_used(stage, subjects):
    run = await stage.play(
        "map_reduce",
        {"topics": [{"subjects": subjects}], "joke": "meow", "pick": [{"index": 7}]},
        input="animals",
    )

    assert (run.status, run.failure) == ("FAILED", "EXPRESSION_FAILED")
    assert run.path[-1] == "best"
