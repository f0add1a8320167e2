"""What the tools of the demo give back. The planner reads the same models from the conversation."""

from __future__ import annotations

from pydantic import BaseModel


class FileEntry(BaseModel):
    """A file of a folder. `lines` is 0 for what is not text."""

    path: str
    bytes: int
    lines: int


class Listing(BaseModel):
    """Files and folders below a path. The totals count everything; `files` is cut where `cut` says so."""

    path: str
    pattern: str
    total_files: int
    total_lines: int
    total_bytes: int
    files: list[FileEntry]
    folders: list[str]
    cut: bool


class Excerpt(BaseModel):
    """Lines of a file, `first_line` being the number of the first one."""

    file: str
    first_line: int
    total_lines: int
    lines: list[str]


class Match(BaseModel):
    """A line in which a text was found."""

    file: str
    line: int
    text: str


class FileCount(BaseModel):
    """How many lines of a file have a text in them."""

    file: str
    count: int


class Found(BaseModel):
    """Where a text was found. `total` counts all lines; `matches` and `files` are cut where `cut` says so."""

    text: str
    files_searched: int
    total: int
    files: list[FileCount]
    matches: list[Match]
    cut: bool


class FolderSize(BaseModel):
    """How much text there is below a folder, all folders inside it included."""

    path: str
    files: int
    lines: int


class Measured(BaseModel):
    """A folder, the folders directly inside it, how many files there are of each suffix, and the longest file."""

    whole: FolderSize
    parts: list[FolderSize]
    kinds: dict[str, int]
    longest: FileEntry | None


class Survey(BaseModel):
    """What a surveyor says of one folder. `introduction` is quoted from `introduced_by`, a file of the folder."""

    measured: Measured
    introduced_by: str
    introduction: list[str]

    @property
    def folder(self) -> FolderSize:
        """The folder as a whole."""
        return self.measured.whole
