"""A supervisor with two workers: the way follows its reply, and each loop back has its own count."""

from __future__ import annotations

import pytest

from tests.shapes.stage import fails


def sends(worker: str) -> dict[str, object]:
    return {"next": worker, "instruction": f"for {worker}"}


async def test_work_goes_round_until_the_supervisor_is_content(stage):
    run = await stage.play(
        "supervisor",
        {
            "supervisor": [
                sends("SOFTWARE"),
                sends("REVIEWER"),
                sends("SOFTWARE"),
                sends("FINISH"),
            ],
            "engineer": ["written", "mended"],
            "reviewer": ["a bug"],
            "answer": ["here it is"],
        },
        messages=["count words"],
    )

    assert run.path == [
        *("supervisor", "engineer", "supervisor", "reviewer"),
        *("supervisor", "engineer", "supervisor", "answer"),
    ]
    assert (run.status, run.end) == ("COMPLETED", "answer")
    assert run.asked["engineer"] == ["for SOFTWARE", "for SOFTWARE"]
    assert run.variables["next"] == "FINISH"
    assert run.conversation[-1] == "assistant: here it is"


async def test_a_supervisor_that_is_content_at_once_needs_nobody(stage):
    run = await stage.play("supervisor", {"supervisor": [sends("FINISH")], "answer": ["nothing"]})

    assert run.path == ["supervisor", "answer"]
    assert run.skipped == {"engineer", "reviewer"}


async def test_each_loop_back_has_a_count_of_its_own(stage):
    replies = [sends("SOFTWARE"), sends("REVIEWER")] * 5 + [sends("REVIEWER")]

    run = await stage.play(
        "supervisor",
        {"supervisor": replies, "engineer": "worked", "reviewer": "looked", "answer": ["enough"]},
    )

    assert run.counts == {"supervisor": 11, "engineer": 5, "reviewer": 6, "answer": 1}
    assert run.followed("engineer.supervisor") == run.followed("reviewer.supervisor") == 5
    assert run.path[-2:] == ["reviewer", "answer"], "the sixth review leads on, not back"


async def test_a_worker_that_fails_fails_the_run_and_nobody_goes_on(stage):
    run = await stage.play(
        "supervisor", {"supervisor": [sends("SOFTWARE")], "engineer": [fails("NO_DISK")]}
    )

    assert (run.status, run.failure) == ("FAILED", "NO_DISK")
    assert run.path == ["supervisor", "engineer"]


@pytest.mark.parametrize("next_one", ["MANAGER", ""])
async def test_a_worker_that_there_is_not_is_no_reply(stage, next_one):
    run = await stage.play("supervisor", {"supervisor": [sends(next_one)] * 3})

    assert (run.status, run.failure) == ("FAILED", "OUTPUT_SCHEMA")
    assert run.path == ["supervisor"]
