"""Tools of the demo work inside their folder, and nowhere else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from examples.demo.folder import Bounds, Folder, FolderError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text("the secret\n")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("the secret\n")
    (root / ".env").write_text("the secret\n")
    (root / "a.py").write_text("def decide():\n    return 1\n")
    (root / "sub" / "b.md").write_text("decide decides\nDecide\n")
    (root / "picture.bin").write_bytes(b"\x00decide")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "out").symlink_to(tmp_path)
    return root


@pytest.fixture
def folder(root: Path) -> Folder:
    return Folder(root)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../outside.txt", "not inside the folder"),
        ("sub/../../outside.txt", "not inside the folder"),
        ("sub/../a.py", "not inside the folder"),
        ("/etc/passwd", "not inside the folder"),
        ("C:/windows/win.ini", "not inside the folder"),
        ("..\\outside.txt", "not inside the folder"),
        ("a\0.py", "not inside the folder"),
        ("link.txt", "symbolic link"),
        ("out/outside.txt", "symbolic link"),
        (".env", "hidden"),
        (".git/config", "hidden"),
        ("nosuch.py", "there is no"),
    ],
)
def test_no_tool_leaves_the_folder(folder: Folder, path: str, reason: str) -> None:
    for tool in (folder.read_file, folder.list_files):
        with pytest.raises(FolderError, match=reason):
            tool(path)
    with pytest.raises(FolderError, match=reason):
        folder.search("secret", path)


def test_a_search_sees_no_links_no_hidden_files_and_no_bytes(folder: Folder) -> None:
    assert folder.search("secret").total == 0
    assert [each.file for each in folder.search("decide").files] == ["a.py", "sub/b.md"]


def test_listing_counts_lines_by_pattern(folder: Folder) -> None:
    listing = folder.list_files(pattern="*.py")
    assert [(each.path, each.lines) for each in listing.files] == [("a.py", 2)]
    assert listing.folders == ["sub"]
    assert folder.list_files("sub").files[0].path == "sub/b.md"
    assert folder.list_files().total_files == 3


def test_a_search_counts_whole_words_and_any_case(folder: Folder) -> None:
    assert folder.search("decide", whole_word=True).total == 2
    assert folder.search("DECIDE", ignore_case=True).total == 3
    assert folder.search("decide(", whole_word=True).total == 1
    assert folder.search(".", path="a.py").total == 0, "it is no regular expression"


@pytest.mark.parametrize("text", ["", "  ", "a\nb", "x" * 300])
def test_a_search_for_nothing_or_too_much_is_refused(folder: Folder, text: str) -> None:
    with pytest.raises(FolderError, match="search for one line"):
        folder.search(text)


def test_reading_is_bounded_by_lines_and_their_length(root: Path) -> None:
    (root / "long.txt").write_text("x" * 1_000 + "\n" + "y\n" * 100)
    folder = Folder(root, Bounds(max_lines=5, max_line_chars=10))
    excerpt = folder.read_file("long.txt")
    assert excerpt.lines == ["xxxxxxxxx…", "y", "y", "y", "y"]
    assert excerpt.total_lines == 101
    assert folder.read_file("long.txt", 2, 3).lines == ["y", "y"]
    with pytest.raises(FolderError, match="there is no line 102"):
        folder.read_file("long.txt", 102)


def test_what_is_cut_says_so(root: Path) -> None:
    folder = Folder(root, Bounds(max_entries=1, max_matches=1))
    assert folder.list_files().cut
    found = folder.search("decide")
    assert found.cut
    assert (found.total, len(found.matches), len(found.files)) == (2, 1, 1)


def test_too_many_files_and_too_large_ones_are_refused(root: Path) -> None:
    with pytest.raises(FolderError, match="more than 2 files"):
        Folder(root, Bounds(max_files=2)).list_files()
    folder = Folder(root, Bounds(max_file_bytes=4))
    with pytest.raises(FolderError, match="larger than 4 bytes"):
        folder.read_file("a.py")
    assert folder.search("decide").total == 0


def test_a_pipe_is_never_opened(folder: Folder, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(FolderError, match="not a regular file"):
        folder.read_file("pipe")
    assert folder.search("decide").files_searched == 3


def test_the_root_itself_must_be_a_folder(root: Path) -> None:
    with pytest.raises(FolderError, match="is not a folder"):
        Folder(root / "a.py")


def test_a_folder_is_no_file_and_a_file_no_folder(folder: Folder) -> None:
    with pytest.raises(FolderError, match="use list_files"):
        folder.read_file("sub")
    with pytest.raises(FolderError, match="use read_file"):
        folder.list_files("a.py")
