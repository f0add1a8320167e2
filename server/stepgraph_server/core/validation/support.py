"""What the schema has and this server does not do yet.

Rules: this table is the only place. To offer something, remove its line; that its fields are right is checked already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import Message

from stepgraph_server.core.validation.codes import ProblemCode

if TYPE_CHECKING:
    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report

#: Fields of StateGraph.
GRAPH_FIELDS: Final = ("tools",)
#: Fields of GraphNode, with dots into what they hold.
NODE_FIELDS: Final = ("answers",)


def check_support(report: Report, outline: Outline) -> None:
    """Report every field that is set and that this server would not heed."""
    definition = outline.definition
    for field in GRAPH_FIELDS:
        if _is_set(definition, field):
            _refuse(report, outline.path + field)
    for number, node in enumerate(definition.nodes):
        for field in NODE_FIELDS:
            if _is_set(node, field):
                _refuse(report, f"{outline.node_path(number)}.{field}")


def _is_set(message: Message, path: str) -> bool:
    first, _, rest = path.partition(".")
    field = message.DESCRIPTOR.fields_by_name[first]
    if field.has_presence and not message.HasField(first):
        return False
    value: object = getattr(message, first)
    if rest and isinstance(value, Message):
        return _is_set(value, rest)
    return field.has_presence or bool(value)


def _refuse(report: Report, path: str) -> None:
    report.problem(
        ProblemCode.NOT_YET_SUPPORTED,
        path,
        "this server does not do this yet",
        "Use a newer server, or leave it out.",
    )
