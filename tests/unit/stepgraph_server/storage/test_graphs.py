"""The port of graphs, and what a reference means."""

from __future__ import annotations

import pytest

from stepgraph_server.storage.graphs import GraphReference, Graphs
from stepgraph_server.storage.memory import MemoryGraphs
from stepgraph_server.storage.sqlite.graphs import SqliteGraphs
from tests.unit.stepgraph_server.storage.shapes import differences


@pytest.mark.parametrize("backend", [MemoryGraphs, SqliteGraphs])
def test_every_backend_has_the_methods_of_the_port(backend: type) -> None:
    """With the same parameters, in the same order."""
    assert differences(Graphs, backend) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("review", GraphReference(name="review")),
        ("review@3", GraphReference(name="review", version=3)),
        ("a@b@12", GraphReference(name="a@b", version=12)),
        ("sha256:ab", GraphReference(digest="sha256:ab")),
        ("sha256:ab@3", GraphReference(digest="sha256:ab@3")),
    ],
)
def test_a_reference_is_a_name_a_version_or_a_digest(text: str, expected: GraphReference) -> None:
    """As callers write it."""
    assert GraphReference.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["review@", "review@0", "review@01", "review@x", "review@-1", "r@٣"]
)
def test_what_follows_the_at_sign_is_a_version(text: str) -> None:
    """A whole number from 1, in plain digits."""
    with pytest.raises(ValueError, match="is not a version"):
        GraphReference.parse(text)
