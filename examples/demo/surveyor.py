"""The sub-agent of the third act: it is given a folder and says what is in it, from what it really reads.

It hosts no model. An agent is whatever its executor makes of a task: a model in a loop, another service, or, as here, a few
rules.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from examples.demo.findings import Excerpt, Survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.demo.folder import Folder

#: Files that introduce a folder.
_INTRODUCING = re.compile(
    r"(?i)^(readme(\.\w+)?|architecture\.md|index\.md|__init__\.py|mod\.rs|doc\.go)$"
)
MAX_LINES = 3
HEAD_LINES = 40


def survey(folder: Folder, path: str, progress: Callable[[str], None]) -> Survey:
    """Survey one folder.

    Raises:
        FolderError: there is no such folder, or it is not inside.
    """
    measured = folder.measure(path)
    progress(f"{path}: {measured.whole.files:,} files, {measured.whole.lines:,} lines")
    file, lines = _introduction(folder, path)
    progress(f"{path}: introduced by {file}" if file else f"{path}: nothing introduces it")
    return Survey(measured=measured, introduced_by=file, introduction=lines)


def _introduction(folder: Folder, path: str) -> tuple[str, list[str]]:
    """Return the file of a folder that introduces it, and its first sentences."""
    for file in folder.files_of(path):
        if _INTRODUCING.match(PurePosixPath(file).name):
            lines = _prose(folder.read_file(file, 1, HEAD_LINES))
            if lines:
                return file, lines
    return "", []


def _prose(head: Excerpt) -> list[str]:
    """Return the first lines of a file that say something: no headings, code or imports."""
    kept: list[str] = []
    for line in head.lines:
        text = line.strip().strip('"').strip()
        says = len(text.split()) > 3 and text[0].isalnum() and not re.match(r"(from|import) ", text)
        if says:
            kept.append(text)
        elif kept:
            break
    return kept[:MAX_LINES]
