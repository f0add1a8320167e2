"""What to do about a refusal, for whoever typed the command.

Rules: one place, by the reason of the refusal; the server's own words come before it and are not said again. A reason that is not here
has a message that says what to do itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_client.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph_client.errors import Refused

_BY_REASON: Mapping[str, str] = {
    "RUN_NOT_FOUND": "`{command} runs list` shows the runs of this namespace.",
    "GRAPH_NOT_FOUND": "`{command} graphs list` shows the graphs of this namespace; `graphs register FILE` adds one.",
    "INTERRUPT_NOT_FOUND": "`{command} interrupts` shows the questions that are open.",
    "VALUE_NOT_FOUND": "Is the namespace the right one? Values that nothing refers to are kept for a day.",
    "RUN_EXISTS": "Choose another --run-id, or leave it out: then the server makes one.",
    "RUN_ENDED": "`{command} runs get {run_id}` shows how it ended.",
    "RUN_NOT_ENDED": "`{command} runs get {run_id}` shows where it stands.",
    "INTERRUPT_ANSWERED": "`{command} interrupts get {interrupt_id}` shows the answer that counts.",
    "INTERRUPT_CLOSED": "`{command} runs history {run_id}` shows how the run went on.",
    "SEQUENCE_OUT_OF_RANGE": "`{command} runs history {run_id}` shows the events.",
    "RUN_QUARANTINED": "The server's log says why it can't read the run's journal; nothing acts on the run meanwhile.",
    "OVERLOADED": "Try again in a moment.",
}


def advice(refusal: Refused, command: str) -> str:
    """Return what to do about a refusal; empty if its message says all there is."""
    if isinstance(refusal, NotSupported):
        return _unsupported(refusal, command)
    text = _BY_REASON.get(refusal.reason, "")
    # A fact may be empty, and then says nothing.
    known = {name: value for name, value in refusal.metadata.items() if value}
    facts = {"run_id": "RUN", "interrupt_id": "ID", **known, "command": command}
    return text.format_map(facts)


def _unsupported(refusal: Refused, command: str) -> str:
    if refusal.reason == "NOT_YET_SUPPORTED":
        return "This version of the server does not do that yet; a later one will. Nothing was changed."
    return (
        "The server is older than this command line, or is no stepgraph server; "
        f"`{command} doctor` says which versions meet here."
    )
