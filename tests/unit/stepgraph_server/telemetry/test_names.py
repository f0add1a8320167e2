"""Actions are stable, distinct and formed alike."""

from __future__ import annotations

import re
from pathlib import Path

from stepgraph_server.telemetry import names


def test_actions_are_distinct_and_name_a_noun_and_what_happened():
    actions = [value for name, value in vars(names).items() if name.isupper()]

    assert len(actions) > 5
    assert len(set(actions)) == len(actions)
    assert all(re.fullmatch(r"[a-z]+\.[a-z]+", action) for action in actions)


def test_every_action_of_the_server_is_one_of_these():
    sources = Path(names.__file__).parents[1].rglob("*.py")
    written_out = [path.name for path in sources if '"action": "' in path.read_text()]
    assert written_out == []
