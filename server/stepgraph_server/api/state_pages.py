"""A state in pages: messages first, then variables by name; all else comes with the first page.

Rules: a page is cut by count and by bytes. A single message or variable that is larger than what is left stands alone on its
page, since the limits of values keep it below what clients can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph.v1 import run_service_pb2

if TYPE_CHECKING:
    from stepgraph_server.api.ports import StateAt


def state_page(
    state: StateAt, *, start: int, limit: int, max_bytes: int
) -> tuple[run_service_pb2.GetRunStateResponse, int | None]:
    """Return a page, and where the next one starts; None at the end.

    Args:
        state: The state.
        start: How many messages and variables the earlier pages held.
        limit: The most messages and variables of this page.
        max_bytes: Where it is cut.
    """
    response = run_service_pb2.GetRunStateResponse(sequence=state.sequence)
    response.state.SetInParent()
    if start == 0:
        _add_rest(response, state, max_bytes // 2)
    room = max_bytes - response.ByteSize()
    messages, names = state.messages, sorted(state.variables)
    total = len(messages) + len(names)
    index = start
    while index < min(total, start + limit):
        name = names[index - len(messages)] if index >= len(messages) else ""
        entry = state.variables[name] if name else messages[index]
        room -= entry.ByteSize() + len(name)
        if room < 0 and index > start:
            break
        if name:
            response.state.variables[name].CopyFrom(state.variables[name])
        else:
            response.state.conversation.messages.append(messages[index])
        index += 1
    return response, index if index < total else None


def _add_rest(
    response: run_service_pb2.GetRunStateResponse, state: StateAt, max_bytes: int
) -> None:
    response.state.CopyFrom(state.rest())
    result = state.result()
    if result is not None:
        response.result.CopyFrom(result)
    room = max_bytes - response.ByteSize()
    for activation in state.activations():
        room -= activation.ByteSize()
        if room < 0:
            # Thousands may be live at once, and they can't be paged: beyond the room they are listed bare.
            response.activations.add(
                activation_id=activation.activation_id,
                node_id=activation.node_id,
                ended=activation.ended,
            )
        else:
            response.activations.append(activation)
