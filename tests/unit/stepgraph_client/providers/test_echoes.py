"""What a provider wants back unchanged."""

from __future__ import annotations

import pytest

from stepgraph_client.providers.echoes import packed, unpacked


def test_what_was_left_comes_back():
    """What a provider left comes back to it as it was."""
    content = {"extra": {"sig": "ü", "n": [1, None]}}
    assert unpacked("a", packed("a", content)) == content


def test_another_provider_gets_nothing():
    """What one provider left is not sent to another."""
    assert unpacked("b", packed("a", {"sig": "x"})) == {}


def test_nothing_to_keep_is_nothing():
    """Where nothing is wanted back, nothing is kept."""
    assert packed("a", {}) == b""
    assert unpacked("a", b"") == {}


@pytest.mark.parametrize(
    "data", [b"\xff\x00", b"[1]", b'{"a": 1}', b"{", b"[" * 100_000], ids=range(5)
)
def test_bytes_of_somebody_else_are_left_alone(data):
    """Bytes that are packed otherwise are as if they were not there."""
    assert unpacked("a", data) == {}
