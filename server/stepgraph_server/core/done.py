"""What an action ends with when it ends well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepgraph.v1 import conversation_pb2, failure_pb2, state_pb2, value_pb2
    from stepgraph_server.core.state import CallNote


@dataclass(slots=True, kw_only=True)
class Done:
    """The end of a node: its result, and what it changes of its view."""

    #: The node's result; None hands last_result on untouched.
    value: value_pb2.Value | None = None
    messages: tuple[conversation_pb2.Message, ...] = ()
    #: Variables to write, in order; None deletes.
    writes: tuple[tuple[str, value_pb2.Value | None], ...] = ()
    #: The decision to carry on, if `decides`; None clears it.
    decision: state_pb2.GraphDecision | None = None
    decides: bool = False
    #: The paradigm to carry on; None leaves it.
    paradigm: str | None = None
    #: The error to carry on; None clears it if the node works, and leaves it else.
    error: failure_pb2.Failure | None = None
    #: What is to be said of calls that get no result.
    notes: tuple[CallNote, ...] = ()
    #: Where a Goto leads, in place of the node's edges; "" if there is none.
    target: str = ""
    #: What it carries there.
    handed: value_pb2.Value | None = None
