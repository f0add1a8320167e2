"""A programmer with six ways back: edges read what the model decided, programs hand off over the edges that are declared."""

from __future__ import annotations

import pytest

from examples.shapes import programs
from stepgraph_client import reply
from stepgraph_testing import call, calls
from tests.shapes.stage import fails, said

PROGRAMS = {
    "help": programs.help_wanted,
    "progress": programs.progress,
    "summarise": programs.summarise,
}
TOOLS = ("shell", "apply_patch")
BEGIN = {"init": ["box 1"]}
RUN = calls(call("shell", command="pytest"))


async def begin(stage, script, **start):
    given = {"programs": PROGRAMS, "tools": TOOLS, "messages": ["Make the tests pass."], **start}
    return await stage.begin("coding_agent", {**BEGIN, **script}, **given)


async def play(stage, script, **start):
    return await (await begin(stage, script, **start)).over()


async def test_it_acts_until_it_asks_for_nothing_more(stage):
    patch = calls(call("shell", command="ls"), call("apply_patch", patch="+x"))
    run = await play(
        stage,
        {
            "act": [RUN, patch, "They pass."],
            "shell": ["2 failed", "a.py"],
            "apply_patch": ["patched"],
            "progress": ["MORE", "MORE"],
            "open": ["#1"],
        },
    )

    assert run.path == ["init", *("act", "take", "progress") * 2, "act", "open", "opened"]
    assert (run.status, run.end) == ("COMPLETED", "opened")
    assert run.asked["shell"] == [{"command": "pytest"}, {"command": "ls"}]
    assert run.followed("progress.act") == 2
    assert run.skipped >= {"help", "update_plan", "diagnose", "summarise", "conclude"}


async def test_what_a_person_says_is_the_result_of_the_call_for_help(stage):
    question = calls(call("request_help", question="Which Python?"))
    live = await begin(stage, {"act": [question, "Done."], "open": ["#1"]})
    asked = await live.answer(reply("3.11"))
    run = await live.over()

    assert asked.reason.human.prompt == "Which Python?"
    assert run.path == ["init", "act", "help", "act", "open", "opened"]
    assert [said(message) for message in run.asked["act"][1].messages][-1] == "tool: 3.11"


async def test_a_person_who_says_nothing_ends_it_from_inside_of_the_question(stage):
    question = calls(call("request_help", question="Which Python?"))
    live = await begin(stage, {"act": [question]})
    await live.answer(reply(""))
    run = await live.over()

    assert run.path == ["init", "act", "help", "given_up"]
    assert (run.status, run.end) == ("COMPLETED", "given_up")


async def test_the_reasoning_of_a_call_is_the_input_of_the_planner(stage):
    wish = calls(call("update_plan", reasoning="the parser is generated"))
    run = await play(
        stage,
        {"act": [wish, "Done."], "update_plan": ["1. generate it"], "open": ["#1"]},
        variables={"plan": "1. edit it"},
    )

    assert run.path == ["init", "act", "update_plan", "act", "open", "opened"]
    asked = said(run.asked["update_plan"][0].messages[-1])
    assert asked == (
        "user: The plan was: 1. edit it\nIt should change, because: the parser is generated"
    )
    assert run.variables["plan"] == "1. generate it"
    assert said(run.asked["act"][1].messages[-1]) == "tool: 1. generate it"
    assert "The plan: 1. generate it" in run.asked["act"][1].system_prompt


async def test_if_all_calls_of_a_reply_fail_there_is_a_diagnosis(stage):
    both = calls(call("shell", command="a"), call("shell", command="b"))
    run = await play(
        stage,
        {
            "act": [both, "Done."],
            "shell": [fails("NO_SHELL"), fails("NO_SHELL")],
            "diagnose": ["There is no shell."],
            "open": ["#1"],
        },
    )

    assert run.path == ["init", "act", "take", "diagnose", "act", "open", "opened"]


async def test_one_call_that_fails_among_others_is_for_the_model(stage):
    both = calls(call("shell", command="a"), call("shell", command="b"))
    run = await play(
        stage,
        {
            "act": [both, "Done."],
            "shell": lambda asked: fails("LOST") if asked["command"] == "a" else "ok",
            "progress": ["MORE"],
            "open": ["#1"],
        },
    )

    assert "diagnose" not in run.path


async def test_what_is_done_is_concluded_before_it_is_opened(stage):
    run = await play(
        stage,
        {
            "act": [RUN],
            "shell": ["ok"],
            "progress": ["DONE"],
            "conclude": ["Parser mended"],
            "open": ["#1"],
        },
    )

    assert run.path == ["init", "act", "take", "progress", "conclude", "open", "opened"]
    assert run.asked["open"] == [{"title": "Parser mended"}]


@pytest.mark.parametrize(
    ("judged", "after"), [("MORE", ["act", "open"]), ("DONE", ["conclude", "open"])]
)
async def test_what_is_long_is_summed_up_and_goes_where_it_would_have_gone(stage, judged, after):
    run = await play(
        stage,
        {
            "act": [RUN, "Done."] if judged == "MORE" else [RUN],
            "shell": ["ok"],
            "progress": [judged],
            "summarise": ["Much was tried."],
            "conclude": [] if judged == "MORE" else ["Parser mended"],
            "open": ["#1"],
        },
        messages=["Make the tests pass."] * (programs.LONG + 1),
    )

    assert run.path == ["init", "act", "take", "progress", "summarise", *after, "opened"]
    assert run.variables["summary"] == "Much was tried."


async def test_a_program_can_only_go_where_an_edge_leads(stage):
    async def astray(ctx):
        ctx.goto("open")

    run = await play(
        stage, {"act": [RUN], "shell": ["ok"]}, programs={**PROGRAMS, "progress": astray}
    )

    assert (run.status, run.failure) == ("FAILED", "HANDOFF_MISSING")


async def test_it_can_be_allowed_less_than_it_asks_for(stage):
    run = await play(stage, {"act": RUN, "shell": "ok", "progress": "MORE"}, max_iterations=10)

    assert (run.status, run.failure) == ("FAILED", "MAX_ITERATIONS")
    assert run.counts["shell"] == 3
