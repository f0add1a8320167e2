"""A folder that tools may read: everything inside it, and nothing outside it.

Rules: every path that comes from a model goes through `_inside`. A symbolic link is neither followed nor listed, wherever
it points. What is hidden (`.env`, `.git`) is not shown: it is where secrets are. Everything that is returned is bounded, and says so where it was cut. Only regular files are opened: reading a
pipe would wait for ever.

What is not defended against is someone who swaps folders for links while a tool reads; who can do that can read the
folder anyway.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

from examples.demo.findings import (
    Excerpt,
    FileCount,
    FileEntry,
    FolderSize,
    Found,
    Listing,
    Match,
    Measured,
)
from stepgraph_client.task_errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

#: Folders that hold what tools made and not what people wrote. Hidden files and folders are left out as well.
SKIPPED = frozenset({"__pycache__", "node_modules", "build", "dist", "venv", "htmlcov"})


class FolderError(ToolError):
    """A tool can't do what a model asked for. Expected; the message tells the model what to do instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of a folder is looked at, and how much a tool gives back."""

    max_files: int = 20_000
    max_depth: int = 24
    max_file_bytes: int = 1024 * 1024
    max_entries: int = 200
    max_matches: int = 60
    max_lines: int = 200
    max_line_chars: int = 240
    max_text_chars: int = 200


class Folder:
    """The folder that the tools work in."""

    def __init__(self, root: Path, bounds: Bounds | None = None) -> None:
        self.root = root.resolve(strict=True)
        self._bounds = bounds or Bounds()
        if not self.root.is_dir():
            message = f"{root} is not a folder"
            raise FolderError(message)

    # Tools --------------------------------------------------------------------------------------

    def list_files(self, path: str = ".", pattern: str = "*") -> Listing:
        """List the files below a path whose name, or path, fits a pattern such as "*.py"."""
        start = self._inside(path)
        if not start.is_dir():
            message = f"{path} is a file, not a folder: use read_file"
            raise FolderError(message)
        entries: list[FileEntry] = []
        for file in self._walk(start):
            name = self._name(file)
            if fnmatch.fnmatch(file.name, pattern) or fnmatch.fnmatch(name, pattern):
                entries.append(self._entry(file))
        return Listing(
            path=self._name(start),
            pattern=pattern,
            total_files=len(entries),
            total_lines=sum(each.lines for each in entries),
            total_bytes=sum(each.bytes for each in entries),
            files=entries[: self._bounds.max_entries],
            folders=[self._name(each) for each in self._folders(start)],
            cut=len(entries) > self._bounds.max_entries,
        )

    def measure(self, path: str = ".") -> Measured:
        """Say how many files and lines there are below a path, and below each folder directly inside it."""
        start = self._inside(path)
        if not start.is_dir():
            message = f"{path} is a file, not a folder: use read_file"
            raise FolderError(message)
        entries = [self._entry(file) for file in self._walk(start)]
        kinds = Counter(PurePosixPath(each.path).suffix or "no suffix" for each in entries)
        return Measured(
            whole=_size(self._name(start), entries),
            parts=[_size(self._name(each), entries) for each in self._folders(start)],
            kinds=dict(kinds.most_common()),
            longest=max(entries, key=lambda each: each.lines, default=None),
        )

    def read_file(self, path: str, first_line: int = 1, last_line: int = 0) -> Excerpt:
        """Read lines of a text file; without a last line, as many as are given at once."""
        file = self.path_of(path)
        lines = self.text_of(path).splitlines()
        if first_line < 1 or first_line > max(len(lines), 1):
            message = f"{path} has {len(lines)} lines; there is no line {first_line}"
            raise FolderError(message)
        end = first_line - 1 + self._bounds.max_lines
        if last_line:
            end = min(end, last_line)
        return Excerpt(
            file=self._name(file),
            first_line=first_line,
            total_lines=len(lines),
            lines=[self._short(each) for each in lines[first_line - 1 : end]],
        )

    def search(
        self,
        text: str,
        path: str = ".",
        *,
        whole_word: bool = False,
        ignore_case: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Found:
        """Find a text in the files below a path, line by line. It is no regular expression."""
        if not text.strip() or len(text) > self._bounds.max_text_chars or "\n" in text:
            message = f"search for one line of 1 to {self._bounds.max_text_chars} characters"
            raise FolderError(message)
        # The text is escaped, so no model can write an expression that takes for ever. An edge is looked at only where the
        # text has a letter or digit there: "decide(" is a whole word with anything behind it.
        before = r"(?<!\w)" if whole_word and text[0].isalnum() else ""
        after = r"(?!\w)" if whole_word and text[-1].isalnum() else ""
        wanted = re.compile(
            before + re.escape(text) + after, re.IGNORECASE if ignore_case else re.NOFLAG
        )
        start = self._inside(path)
        files = [start] if start.is_file() else list(self._walk(start))
        matches: list[Match] = []
        counts: list[FileCount] = []
        for done, file in enumerate(files, start=1):
            found = self._matches(file, wanted)
            matches += found
            if found:
                counts.append(FileCount(file=self._name(file), count=len(found)))
            if progress is not None:
                progress(done, len(files))
        bounds = self._bounds
        return Found(
            text=text,
            files_searched=len(files),
            total=len(matches),
            files=counts[: bounds.max_entries],
            matches=matches[: bounds.max_matches],
            cut=len(matches) > bounds.max_matches or len(counts) > bounds.max_entries,
        )

    def _matches(self, file: Path, wanted: re.Pattern[str]) -> list[Match]:
        name = self._name(file)
        return [
            Match(file=name, line=number, text=self._short(line))
            for number, line in enumerate((self._text(file) or "").splitlines(), start=1)
            if wanted.search(line)
        ]

    # Files --------------------------------------------------------------------------------------

    def path_of(self, path: str) -> Path:
        """Return where a file is.

        Raises:
            FolderError: it is outside the folder, is not there, or is no regular file.
        """
        file = self._inside(path)
        if not file.is_file():
            what = "a folder: use list_files" if file.is_dir() else "not a regular file"
            message = f"{path} is {what}"
            raise FolderError(message)
        return file

    def files_of(self, path: str) -> list[str]:
        """Return the files directly inside a folder, by name.

        Raises:
            FolderError: it is outside the folder, or is not there.
        """
        place = self._inside(path)
        return [self._name(file) for file in self._walk(place) if file.parent == place]

    def text_of(self, path: str) -> str:
        """Return the whole text of a file.

        Raises:
            FolderError: it can't be read, see `path_of`, or is not text.
        """
        text = self._text(self.path_of(path))
        if text is None:
            message = f"{path} is not text, or larger than {self._bounds.max_file_bytes} bytes"
            raise FolderError(message)
        return text

    # What is inside -----------------------------------------------------------------------------

    def _inside(self, path: str) -> Path:
        """Return the place that a path names.

        Raises:
            FolderError: it is outside the folder, goes through a link, or does not exist.
        """
        given = PurePosixPath(path.replace("\\", "/"))
        outside = given.is_absolute() or PureWindowsPath(path).drive or ".." in given.parts
        if outside or "\0" in path:
            message = f"{path!r} is not inside the folder; give a path relative to it, such as {self._hint()!r}"
            raise FolderError(message)
        place = self.root
        for part in given.parts:
            if part.startswith("."):
                message = f"{path} is hidden; hidden files are not shown"
                raise FolderError(message)
            place = place / part
            if place.is_symlink():
                message = f"{path} goes through a symbolic link; links are not followed"
                raise FolderError(message)
        if not place.exists():
            message = f"there is no {path} in the folder; use list_files to see what there is"
            raise FolderError(message)
        return place

    def _hint(self) -> str:
        return next((self._name(file) for file in self._walk(self.root)), ".")

    def _walk(self, start: Path) -> Iterator[Path]:
        """Yield the regular files below a place by name, folders after files."""
        seen = 0
        for here, folders, files in os.walk(start, followlinks=False):
            place = Path(here)
            depth = len(place.relative_to(self.root).parts)
            folders[:] = sorted(
                each for each in folders if _is_shown(each) and depth < self._bounds.max_depth
            )
            for name in sorted(files):
                file = place / name
                if name.startswith(".") or file.is_symlink() or not file.is_file():
                    continue
                seen += 1
                if seen > self._bounds.max_files:
                    message = f"more than {self._bounds.max_files} files: name a folder inside"
                    raise FolderError(message)
                yield file

    def _folders(self, start: Path) -> list[Path]:
        return sorted(
            each
            for each in start.iterdir()
            if each.is_dir() and not each.is_symlink() and _is_shown(each.name)
        )

    def _entry(self, file: Path) -> FileEntry:
        text = self._text(file)
        lines = 0 if text is None else len(text.splitlines())
        return FileEntry(path=self._name(file), bytes=file.stat().st_size, lines=lines)

    def _text(self, file: Path) -> str | None:
        """Return the text of a file; None if it is none, or too much."""
        with file.open("rb") as opened:
            content = opened.read(self._bounds.max_file_bytes + 1)
        if len(content) > self._bounds.max_file_bytes or b"\0" in content:
            return None
        return content.decode("utf-8", errors="replace")

    def _name(self, place: Path) -> str:
        return place.relative_to(self.root).as_posix()

    def _short(self, line: str) -> str:
        limit = self._bounds.max_line_chars
        return line if len(line) <= limit else line[: limit - 1] + "…"


def _size(path: str, entries: Iterable[FileEntry]) -> FolderSize:
    inside = [each for each in entries if path == "." or each.path.startswith(f"{path}/")]
    return FolderSize(path=path, files=len(inside), lines=sum(each.lines for each in inside))


def _is_shown(folder: str) -> bool:
    return not folder.startswith(".") and folder not in SKIPPED and not folder.endswith(".egg-info")
