"""Changes to a file: propose, apply, verify. What was proposed is what is applied, or nothing is.

Rules: a proposal carries digests of the file before and after. `apply` writes only if the file is still as it was when the
change was proposed, and does nothing if it was applied before: an executor may be asked again for what it has already done,
when the server does not know that it did.
"""

from __future__ import annotations

import difflib
import hashlib
from typing import TYPE_CHECKING

from pydantic import BaseModel

from examples.demo.folder import FolderError

if TYPE_CHECKING:
    from pathlib import Path

    from examples.demo.folder import Folder

MAX_DIFF_LINES = 60


class Proposal(BaseModel):
    """A change that somebody may approve."""

    file: str
    find: str
    replace: str
    lines_changed: int
    diff: str
    digest_before: str
    digest_after: str


class Applied(BaseModel):
    """What became of a change. `again` says that it had been applied before, and nothing was written."""

    file: str
    digest: str
    again: bool


class Verified(BaseModel):
    """Whether a file is what was approved."""

    file: str
    digest: str
    as_approved: bool


def propose(folder: Folder, file: str, find: str, replace: str) -> Proposal:
    """Say what replacing a text everywhere in a file would change. Nothing is written.

    Raises:
        FolderError: the file is not there, or does not have the text.
    """
    if not find:
        message = "say what to find"
        raise FolderError(message)
    before = folder.text_of(file)
    after = before.replace(find, replace)
    if after == before:
        message = f"{file} would not change: it has no {find!r}, or that is replaced by itself"
        raise FolderError(message)
    diff = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"a/{file}", f"b/{file}", n=1, lineterm=""
        )
    )
    if len(diff) > MAX_DIFF_LINES:
        message = f"the change has more than {MAX_DIFF_LINES} lines; make it smaller, so that a person can read it"
        raise FolderError(message)
    return Proposal(
        file=file,
        find=find,
        replace=replace,
        lines_changed=sum(1 for line in before.splitlines() if find in line),
        diff="\n".join(diff),
        digest_before=_digest(before),
        digest_after=_digest(after),
    )


def apply(folder: Folder, proposal: Proposal) -> Applied:
    """Write a change that was proposed.

    Raises:
        FolderError: the file is not any more what it was.
    """
    current = folder.text_of(proposal.file)
    if _digest(current) == proposal.digest_after:
        return Applied(file=proposal.file, digest=proposal.digest_after, again=True)
    after = current.replace(proposal.find, proposal.replace)
    if _digest(current) != proposal.digest_before or _digest(after) != proposal.digest_after:
        message = f"{proposal.file} has changed since the change was proposed; propose it again"
        raise FolderError(message)
    _write(folder.path_of(proposal.file), after)
    return Applied(file=proposal.file, digest=proposal.digest_after, again=False)


def verify(folder: Folder, file: str, digest: str) -> Verified:
    """Read a file again, and compare it with what was approved."""
    found = _digest(folder.text_of(file))
    return Verified(file=file, digest=found, as_approved=found == digest)


def _write(file: Path, text: str) -> None:
    """Write a file as a whole: whoever reads it meanwhile sees the old text or the new one."""
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(text.encode())
    new.replace(file)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
