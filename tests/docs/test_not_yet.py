"""The README says what is not there yet, and nothing that is."""

from __future__ import annotations

import re
from pathlib import Path

from stepgraph_server.api.registration import KINDS
from stepgraph_server.core.validation import support

README = Path(__file__).resolve().parents[2] / "README.md"

#: Of gRPC's health service; `Check` and `Watch` are what probes use.
NOT_OURS = {"List"}


def test_what_is_refused_is_told_beforehand():
    """Whoever makes something of it work takes its name out of the list, and who refuses something new puts it there."""
    section = re.search(r"^## Not yet\n(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)
    assert section is not None
    told = set(re.findall(r"`(\w+)`", section[1])) - {"NOT_YET_SUPPORTED"}
    fields = (*support.GRAPH_FIELDS, *support.NODE_FIELDS)
    calls = {
        name.rpartition("/")[2] for name, kind in KINDS.items() if kind == "unsupported"
    } - NOT_OURS
    assert told == {field.rpartition(".")[2] for field in fields} | calls
