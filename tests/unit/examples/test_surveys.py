"""The survey of the demo: what a surveyor says of a real folder, and how the plan follows what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.demo import surveyor, surveys
from examples.demo.folder import Folder, FolderError

if TYPE_CHECKING:
    from pathlib import Path

    from examples.demo.findings import Survey


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    files = {
        "large/a/one.py": "x = 1\n" * 50,
        "large/b/two.py": "y = 2\n" * 30,
        "large/README.md": "# Large\n\nHolds most of what there is here.\nAnd says so.\n\nMore.\n",
        "small/three.txt": "word\n" * 20,
        "empty/picture.bin": "\0",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Folder(tmp_path)


def survey(folder: Folder, path: str) -> Survey:
    return surveyor.survey(folder, path, lambda _: None)


def known(folder: Folder, later: list[str], *paths: str) -> surveys.Known:
    done = [survey(folder, path) for path in paths]
    return surveys.Known(measured=folder.measure(), later=later, surveys=done)


def test_a_surveyor_counts_and_quotes_what_is_there(folder: Folder) -> None:
    """All from the files: sizes, suffixes, the longest file, and the first sentences of what introduces it."""
    told: list[str] = []
    found = surveyor.survey(folder, "large", told.append)
    assert found.folder.model_dump() == {"path": "large", "files": 3, "lines": 86}
    assert [each.path for each in found.measured.parts] == ["large/a", "large/b"]
    assert found.measured.kinds == {".py": 2, ".md": 1}
    assert found.measured.longest is not None
    assert found.measured.longest.path == "large/a/one.py"
    assert found.introduction == ["Holds most of what there is here."]
    assert found.introduced_by == "large/README.md"
    assert told == ["large: 3 files, 86 lines", "large: introduced by large/README.md"]


def test_a_surveyor_does_not_leave_the_folder(folder: Folder) -> None:
    """A planner may write any path into a task."""
    with pytest.raises(FolderError, match="not inside the folder"):
        survey(folder, "../..")


def test_the_first_plan_takes_the_largest_folder(folder: Folder) -> None:
    """Folders without text are left out."""
    plan = surveys.plan(known(folder, []))
    assert (plan.next, plan.later) == ("large", ["small"])


def test_a_large_folder_is_opened(folder: Folder) -> None:
    """What was found changes the plan: the parts are planned with the rest, by size."""
    plan = surveys.plan(known(folder, ["small"], "large"))
    assert (plan.next, plan.later) == ("large/a", ["large/b", "small"])
    assert "large has 81% of all lines" in plan.why


def test_a_small_folder_changes_nothing(folder: Folder) -> None:
    """The plan goes on where it was."""
    plan = surveys.plan(known(folder, ["large/b"], "small"))
    assert (plan.next, plan.later, plan.why) == ("large/b", [], "as planned")


def test_a_plan_ends(folder: Folder) -> None:
    """With nothing left, or after as many surveys as anybody reads."""
    assert surveys.plan(known(folder, [], "small")).next == ""
    assert surveys.plan(known(folder, ["large"], *["small"] * 12)).next == ""


def test_an_opened_folder_counts_by_its_parts(folder: Folder) -> None:
    """Its own survey says what is in it, not that all of it was looked at."""
    total = folder.measure()
    assert surveys.seen_lines([survey(folder, "large")], 106) == 0
    parts = [survey(folder, "large"), survey(folder, "small"), survey(folder, "large/b")]
    assert surveys.seen_lines(parts, 106) == 20 + 30
    assert not surveys.has_seen_enough(total, parts)
    assert surveys.has_seen_enough(total, [*parts, survey(folder, "large/a")])


def test_an_empty_folder_is_reported(tmp_path: Path) -> None:
    """Nothing to plan, nothing to divide by."""
    empty = known(Folder(tmp_path), [])
    assert surveys.plan(empty).next == ""
    assert surveys.report(empty) == (
        "0 files with 0 lines; 0% of the lines were surveyed, in 0 folders:"
    )


def test_a_message_is_read_line_by_line(folder: Folder) -> None:
    """What is not there yet is empty; a message that tells nothing is refused."""
    message = f"measured: {folder.measure().model_dump_json()}\nlater: \nsurveys: "
    read = surveys.Known.read(message)
    assert (read.later, read.surveys, read.measured.whole.files) == ([], [], 5)
    with pytest.raises(ValueError, match="validation error"):
        surveys.Known.read("hello")
