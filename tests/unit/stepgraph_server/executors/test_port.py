"""How full task ids are read."""

from __future__ import annotations

import pytest

from stepgraph_server.executors.port import split_task_id


@pytest.mark.parametrize(
    ("task_id", "parts"),
    [
        ("r1/1/think/t0/e0", ("r1", "1/think/t0/e0")),
        ("run:a.b-c/t", ("run:a.b-c", "t")),
        ("r1/", ("r1", "")),
        ("r1", ("r1", "")),
        ("", ("", "")),
    ],
)
def test_the_run_id_ends_at_the_first_slash(task_id, parts):
    assert split_task_id(task_id) == parts
