"""Actions are stable, distinct and formed alike."""

from __future__ import annotations

import re

from stepgraph_server.telemetry import names


def test_actions_are_distinct_and_name_a_noun_and_what_happened():
    actions = [value for name, value in vars(names).items() if name.isupper()]

    assert len(actions) > 5
    assert len(set(actions)) == len(actions)
    assert all(re.fullmatch(r"[a-z]+\.[a-z]+", action) for action in actions)
