"""Plan, execute, plan again: one variable is replaced and one grows, and a caller may cap the whole."""

from __future__ import annotations

from tests.shapes.stage import fails


async def test_each_step_is_done_and_the_plan_made_anew_until_there_is_a_response(stage):
    run = await stage.play(
        "plan_execute",
        {
            "planner": [{"plan": ["who won", "where is she from"]}],
            "agent": ["Osaka", "Japan"],
            "replan": [
                {"plan": ["where is she from"], "response": ""},
                {"response": "Osaka, Japan"},
            ],
        },
        input="Who won?",
    )

    assert run.path == ["planner", *("agent", "note", "replan") * 2, "done"]
    assert run.asked["agent"] == ["who won", "where is she from"]
    assert run.variables["past_steps"] == [["who won", "Osaka"], ["where is she from", "Japan"]]
    assert run.variables["plan"] == ["where is she from"], "replaced, not extended"
    assert run.variables["response"] == "Osaka, Japan"
    assert (run.status, run.end) == ("COMPLETED", "done")


async def test_the_planner_sees_what_was_done(stage):
    run = await stage.play(
        "plan_execute",
        {"planner": {"plan": ["look"]}, "agent": ["found"], "replan": [{"response": "it"}]},
        input="Find it",
    )

    asked = run.asked["replan"][0].messages[-1].content[0].text.text
    assert "The aim: Find it" in asked
    assert '[["look","found"]]' in asked


async def test_a_caller_may_allow_fewer_supersteps_than_the_graph(stage):
    run = await stage.play(
        "plan_execute",
        {"planner": {"plan": ["dig"]}, "agent": "dug", "replan": {"plan": ["dig"]}},
        input="Dig",
        max_iterations=8,
    )

    assert (run.status, run.failure) == ("FAILED", "MAX_ITERATIONS")
    assert run.counts == {"planner": 1, "agent": 3, "replan": 2}
    assert len(run.variables["past_steps"]) == 2, "what was merged can be read"


async def test_an_empty_response_is_none(stage):
    replies = [{"plan": ["dig"], "response": ""}, {"response": "a bone"}]
    run = await stage.play(
        "plan_execute",
        {"planner": {"plan": ["dig"]}, "agent": ["dug", "dug"], "replan": replies},
        input="Dig",
    )

    assert run.path == ["planner", *("agent", "note", "replan") * 2, "done"]


async def test_neither_a_step_nor_a_response_fails_the_run_at_what_needs_one(stage):
    run = await stage.play(
        "plan_execute",
        {"planner": {"plan": ["dig"]}, "agent": ["dug"], "replan": [{"plan": []}]},
        input="Dig",
    )

    assert (run.status, run.failure) == ("FAILED", "TEMPLATE_FAILED")
    assert run.path == ["planner", "agent", "note", "replan", "agent"]


async def test_a_worker_that_fails_fails_the_run_and_says_who_it_was(stage):
    run = await stage.play(
        "plan_execute",
        {"planner": {"plan": ["dig"]}, "agent": [fails("NO_SPADE")]},
        input="Dig",
    )

    assert (run.status, run.failure) == ("FAILED", "NO_SPADE")
    assert run.path == ["planner", "agent"]
