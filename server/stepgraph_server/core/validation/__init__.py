"""Everything that is wrong, or odd, about a graph, found at once.

One file per noun: what the schema demands of every message (`shape`), of texts and of numbers, of conditions, actions and
questions; the parts of a graph (`structure`), how they hang together (`flow`), and what runs side by side (`parallel`).
"""

from __future__ import annotations

from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.definition import Checked, check
from stepgraph_server.core.validation.report import Findings

__all__ = ["Checked", "Findings", "ProblemCode", "WarningCode", "check"]
