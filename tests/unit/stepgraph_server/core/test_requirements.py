"""Requirements are the same as keys and as messages."""

from __future__ import annotations

import pytest

from stepgraph.v1 import task_pb2
from stepgraph_server.core.requirements import requirement_key, requirement_message

KEYS = [
    ("llm", "gpt-x"),
    ("tool", "search", "sha256:00"),
    ("agent", "researcher"),
    ("condition", "is_safe"),
    ("step", "triage"),
    ("effect", "email"),
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_survives_the_way_to_a_message_and_back(key: tuple[str, ...]):
    """What waits in a queue and what is recorded name the same work."""
    assert requirement_key(requirement_message(key)) == key


def test_every_variant_has_a_key():
    """A variant that is added to the schema alone fails here."""
    variants = {
        field.name for field in task_pb2.Requirement.DESCRIPTOR.oneofs_by_name["kind"].fields
    }

    assert variants == {key[0] for key in KEYS}


def test_an_unknown_variant_is_refused():
    """A requirement of a newer server must not be taken for another one."""
    with pytest.raises(ValueError, match="unknown variant"):
        requirement_key(task_pb2.Requirement())


def test_an_unknown_key_is_a_fault():
    """Keys are made by the server only."""
    with pytest.raises(AssertionError):
        requirement_message(("wish", "x"))
