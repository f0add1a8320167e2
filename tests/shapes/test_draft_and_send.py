"""A draft that a person lets pass or sends back: answers are ways, feedback is state, and sending back has a cap."""

from __future__ import annotations

from stepgraph_client import abort, proceed, revise

MAIL = {"subject": "Friday", "body": "It is on Friday."}


async def test_what_passes_is_made_a_mail_and_sent(stage):
    live = await stage.begin(
        "draft_and_send",
        {"draft": ["a draft"], "fill": [MAIL], "send": ["sent"]},
        input="Tell them",
    )
    question = await live.answer(proceed())
    run = await live.over()

    assert question.reason.human.prompt == "Send this?\na draft"
    assert run.path == ["draft", "ask", "fill", "send"]
    assert (run.status, run.end) == ("COMPLETED", "send")
    assert run.asked["send"] == [MAIL]


async def test_what_is_sent_back_is_drafted_again_with_the_feedback(stage):
    live = await stage.begin(
        "draft_and_send",
        {"draft": ["long", "short"], "fill": [MAIL], "send": ["sent"]},
        input="Tell them",
    )
    await live.answer(revise("shorter"))
    await live.answer(proceed())
    run = await live.over()

    assert run.path == ["draft", "ask", "draft", "ask", "fill", "send"]
    first, second = run.asked["draft"]
    assert first == "Tell them\nlast draft: \nwhat should change: "
    assert second == "Tell them\nlast draft: long\nwhat should change: shorter"
    assert "_approval_feedback" not in run.variables, "the last answer had none"


async def test_who_sends_back_too_often_shelves_the_draft(stage):
    live = await stage.begin("draft_and_send", {"draft": ["no good"] * 6}, input="Tell them")
    for number in range(6):
        await live.answer(revise(f"once more, {number}"))
    run = await live.over()

    assert run.counts == {"draft": 6}
    assert run.followed("ask.draft") == 5
    assert (run.status, run.end) == ("COMPLETED", "shelved")
    assert run.variables["_approval_feedback"] == "once more, 5"


async def test_what_is_aborted_is_never_sent(stage):
    live = await stage.begin("draft_and_send", {"draft": ["a draft"]}, input="Tell them")
    await live.answer(abort("not now"))
    run = await live.over()

    assert run.path == ["draft", "ask", "shelved"]
    assert run.skipped == {"fill", "send"}
