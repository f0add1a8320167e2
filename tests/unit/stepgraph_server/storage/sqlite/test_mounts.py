"""The kind of file system that a folder stands on."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepgraph_server.storage.sqlite.mounts import EPHEMERAL, REMOTE, file_system

TABLE = r"""
21 1 0:20 / / rw,relatime - overlay overlay rw,lowerdir=/a:/b
22 21 0:21 / /proc rw - proc proc rw
30 21 8:1 /vol /data rw,relatime shared:1 - ext4 /dev/sda1 rw
31 30 0:40 / /data/cache rw - tmpfs tmpfs rw
32 21 0:41 / /mnt/old rw - ext4 /dev/sdb1 rw
33 21 0:42 / /mnt/old rw - nfs4 server:/export rw
34 21 8:2 / /my\040disk rw - xfs /dev/sdc1 rw
a line that is none
"""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/srv/stepgraph", "overlay"),
        ("/data", "ext4"),
        ("/data/deep/down", "ext4"),
        ("/data/cache/x", "tmpfs"),
        ("/database", "overlay"),
        ("/mnt/old", "nfs4"),
        ("/my disk/x", "xfs"),
    ],
)
def test_the_innermost_mount_counts(table: Path, place: str, kind: str) -> None:
    """And of two at one point the later one, which covers the other."""
    assert file_system(Path(place), table) == kind


def test_where_there_is_no_table_nothing_is_said(tmp_path: Path) -> None:
    assert file_system(tmp_path, tmp_path / "none") == ""


def test_what_goes_away_is_not_what_is_shared() -> None:
    assert not EPHEMERAL & REMOTE
