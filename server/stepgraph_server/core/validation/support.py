"""What the schema has and this server does not do yet.

Rules: this file is the only place. That the fields are right is checked already. What is refused here would otherwise not be heeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.decisions import filter_passes
from stepgraph_server.core.validation.codes import ProblemCode

if TYPE_CHECKING:
    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report


def check_support(report: Report, outline: Outline) -> None:
    """Report what this server would not heed: nobody is asked before a child run performs a tool."""
    definition = outline.definition
    if not definition.HasField("approval_filter"):
        return
    for number, tool in enumerate(definition.tools):
        name = tool.definition.name
        if tool.HasField("graph") and filter_passes(definition.approval_filter, name):
            report.problem(
                ProblemCode.NOT_YET_SUPPORTED,
                f"{outline.path}tools[{number}].graph",
                f"the approval_filter wants approval of {name}, and this server does not ask before a child run",
                "Deny it in the approval_filter and ask inside of its graph, or let an interrupt node answer it.",
            )
