"""What kind of file system a folder stands on, where that matters to whoever keeps data there.

Rules: it only tells; nothing is refused because of it. What can't be found out is not guessed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

#: A container's own layer, and memory: what is written goes with the container, or with the machine's power.
EPHEMERAL: Final = frozenset({"aufs", "overlay", "ramfs", "tmpfs"})

#: Several machines may have it; SQLite's log needs shared memory, and locks, which these give to one machine at best.
REMOTE: Final = frozenset({"9p", "afs", "ceph", "cifs", "fuse.sshfs", "nfs", "nfs4", "smb3"})

_TABLE: Final = Path("/proc/self/mountinfo")
_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def file_system(place: Path, table: Path = _TABLE) -> str:
    """Return the type of the file system below a place, such as ext4; empty where the machine has no such table."""
    try:
        lines = table.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    place = place.absolute()
    found: tuple[int, str] = (0, "")
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5:
            continue
        point = Path(_ESCAPE.sub(lambda escape: chr(int(escape.group(1), 8)), fields[4]))
        # The innermost wins; of several at one point the last, which covers the others.
        if place.is_relative_to(point) and len(point.parts) >= found[0]:
            found = (len(point.parts), kinds[0])
    return found[1]
