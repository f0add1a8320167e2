"""The port of the rows of runs, and which rows a query means."""

from __future__ import annotations

import pytest

from stepgraph_server.core.instants import Instant
from stepgraph_server.storage.memory import MemoryRuns
from stepgraph_server.storage.records import RunProgress, RunRecord
from stepgraph_server.storage.runs import RunQuery, Runs
from stepgraph_server.storage.sqlite.runs import SqliteRuns
from tests.contracts.storing import COMPLETED, RUNNING, creation, key
from tests.unit.stepgraph_server.storage.shapes import differences

RUN = RunRecord(
    key=key(),
    creation=creation(labels={"env": "prod", "team": "x"}, create_time=Instant(50)),
    progress=RunProgress(status=RUNNING, last_sequence=1),
)


@pytest.mark.parametrize("backend", [MemoryRuns, SqliteRuns])
def test_every_backend_has_the_methods_of_the_port(backend: type) -> None:
    """With the same parameters, in the same order."""
    assert differences(Runs, backend) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"statuses": frozenset({RUNNING, COMPLETED})}, True),
        ({"statuses": frozenset({COMPLETED})}, False),
        ({"graph_digest": "sha256:aa"}, True),
        ({"graph_digest": "sha256:bb"}, False),
        ({"graph_name": "g"}, True),
        ({"graph_name": "h"}, False),
        ({"graph_name": "g", "graph_version": 1}, True),
        ({"graph_name": "g", "graph_version": 2}, False),
        ({"graph_version": 2}, True),
        ({"labels": {"env": "prod"}}, True),
        ({"labels": {"env": "test"}}, False),
        ({"labels": {"env": "prod", "zone": "1"}}, False),
        ({"create_min": 50}, True),
        ({"create_min": 51}, False),
        ({"create_max": 51}, True),
        ({"create_max": 50}, False),
        ({"roots_only": True}, True),
        ({"root_run_id": "r1"}, True),
        ({"root_run_id": "r2"}, False),
        ({"after": (1, "a"), "limit": 0}, True),
    ],
    ids=str,
)
def test_a_run_matches_if_all_that_is_set_does(fields: dict[str, object], expected: bool) -> None:
    """The page does not count."""
    assert RunQuery(**fields).matches(RUN) is expected


def test_a_child_is_no_root() -> None:
    """It has a parent."""
    child = RunRecord(key=key("kid"), creation=creation(parent_run_id="r1"), progress=RUN.progress)
    assert not RunQuery(roots_only=True).matches(child)
    assert RunQuery(root_run_id="r1").matches(RUN)
