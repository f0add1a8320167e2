"""The README says which calls are not there yet, and none that is."""

from __future__ import annotations

import re
from pathlib import Path

from stepgraph_server.api.registration import KINDS

README = Path(__file__).resolve().parents[2] / "README.md"


def test_calls_that_are_refused_are_told_beforehand():
    """Whoever makes one work takes its name out of the list, and who refuses a new one puts it there."""
    section = re.search(r"^## Not yet\n(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    kinds = {name.partition("/")[2]: kind for name, kind in KINDS.items() if "Health" not in name}
    told = {name for name in re.findall(r"`(\w+)`", section[1]) if name in kinds}
    assert told == {name for name, kind in kinds.items() if kind == "unsupported"}
