"""What was proposed is what is applied, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.demo import changes, editor
from examples.demo.folder import Folder, FolderError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "notes.md").write_text("one\nto recieve\n")
    return Folder(tmp_path)


def test_a_proposal_shows_a_diff_and_writes_nothing(folder: Folder) -> None:
    proposal = changes.propose(folder, "notes.md", "recieve", "receive")
    assert "-to recieve" in proposal.diff
    assert "+to receive" in proposal.diff
    assert proposal.lines_changed == 1
    assert "recieve" in folder.text_of("notes.md")


def test_applying_twice_changes_once(folder: Folder) -> None:
    # "a" becomes "aa": doing it twice would show.
    proposal = changes.propose(folder, "notes.md", "one", "one one")
    first, second = changes.apply(folder, proposal), changes.apply(folder, proposal)
    assert (first.again, second.again) == (False, True)
    assert folder.text_of("notes.md").startswith("one one\n")
    assert changes.verify(folder, "notes.md", proposal.digest_after).as_approved


def test_a_file_that_has_changed_meanwhile_is_left_alone(folder: Folder, tmp_path: Path) -> None:
    proposal = changes.propose(folder, "notes.md", "recieve", "receive")
    (tmp_path / "notes.md").write_text("another recieve\n")
    with pytest.raises(FolderError, match="has changed since"):
        changes.apply(folder, proposal)
    assert not changes.verify(folder, "notes.md", proposal.digest_after).as_approved


@pytest.mark.parametrize(("find", "replace"), [("nosuch", "x"), ("one", "one"), ("", "x")])
def test_a_change_that_changes_nothing_is_refused(folder: Folder, find: str, replace: str) -> None:
    with pytest.raises(FolderError):
        changes.propose(folder, "notes.md", find, replace)


def test_a_change_that_nobody_could_read_is_refused(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "many.md").write_text("x\n" * 200)
    with pytest.raises(FolderError, match="make it smaller"):
        changes.propose(folder, "many.md", "x", "y")


def test_later_messages_correct_earlier_ones() -> None:
    wish = editor.wish(["Replace 'a' with 'b' in notes.md", "no, with `c`", "and in other.md"])
    assert wish == editor.Wish(file="other.md", find="a", replace="c")
    assert not editor.missing(wish)


def test_what_is_missing_is_asked_for() -> None:
    assert "which file, what to replace, with what" in editor.missing(editor.wish(["Hello"]))
