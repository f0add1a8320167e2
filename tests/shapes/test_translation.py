"""Branches that exclude each other meet without a join: what comes next runs once, with what was taken."""

from __future__ import annotations

import pytest

from tests.shapes.stage import fails


@pytest.mark.parametrize(
    ("variables", "taken", "other"),
    [
        ({}, "advise", "advise_for_country"),
        ({"country": ""}, "advise", "advise_for_country"),
        ({"country": "Austria"}, "advise_for_country", "advise"),
    ],
)
async def test_the_branch_that_was_taken_is_what_is_improved_by(stage, variables, taken, other):
    run = await stage.play(
        "translation",
        {"translate": ["Good day"], taken: [f"said by {taken}"], "improve": ["Hello"]},
        input="Guten Tag",
        variables=variables,
    )

    assert run.path == ["translate", taken, "improve"]
    assert run.skipped == {other}
    assert run.counts == {"translate": 1, taken: 1, "improve": 1}
    prompt = run.asked["improve"][0].messages[0].content[0].text.text
    assert prompt == f"Improve the translation.\nGuten Tag\nGood day\nsaid by {taken}"
    assert (run.status, run.end) == ("COMPLETED", "improve")


async def test_an_adviser_that_fails_is_not_replaced_by_the_other(stage):
    run = await stage.play(
        "translation", {"translate": ["Good day"], "advise": [fails("SPEECHLESS")]}, input="Hallo"
    )

    assert (run.status, run.failure) == ("FAILED", "SPEECHLESS")
    assert run.path == ["translate", "advise"]
