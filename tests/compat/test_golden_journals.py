"""Journals of earlier versions still mean what they meant: the same events fold to the same state.

A failure here is a change of the rules or of the format: the server would quarantine, or misread, runs that users have.
"""

from __future__ import annotations

import pytest

from stepgraph.v1.event_pb2 import RunEvent
from tests.compat.record import HERE, fold, read

GOLDEN = sorted(HERE.glob("*/*.events.binpb"))
IDS = [f"{path.parent.name}/{path.name.split('.')[0]}" for path in GOLDEN]

# Kinds of which the server writes no event yet, or only after 200,000 others.
UNWRITTEN = {
    "signal_received",
    "graphs_resolved",
    "limit_neared",
    "run_paused",
    "run_unpaused",
    "run_forked",
}


@pytest.fixture(params=GOLDEN, ids=IDS)
def recorded(request):
    return read(request.param.parent, request.param.name.split(".")[0])


def test_events_fold_to_the_state_that_was_recorded(recorded):
    graph, events, state = recorded

    assert fold(graph, events) == state


def test_every_prefix_of_a_journal_folds(recorded):
    graph, events, _ = recorded

    for count in range(1, len(events.events) + 1):
        assert fold(graph, events, count).sequence == count


def test_events_are_written_as_they_were_read(recorded):
    _, events, _ = recorded

    for event in events.events:
        content = event.SerializeToString(deterministic=True)
        assert RunEvent.FromString(content).SerializeToString(deterministic=True) == content


def test_the_newest_journals_hold_every_kind_of_event_that_the_server_writes():
    newest = max(path.parent for path in GOLDEN)
    kinds = {
        event.WhichOneof("kind")
        for path in newest.glob("*.events.binpb")
        for event in read(newest, path.name.split(".")[0])[1].events
    }
    assert kinds == {field.name for field in RunEvent.DESCRIPTOR.oneofs[0].fields} - UNWRITTEN
