"""Ids of tool calls: the server's own, unique in a run.

Rules: providers repeat ids and leave them out, so nothing depends on theirs; what they gave is kept beside, and echoed to them.
"""

from __future__ import annotations

from typing import Final

from stepgraph.v1 import conversation_pb2 as pb

_NO_ID: Final = frozenset({"", "null"})


def assign_call_ids(message: pb.Message, prefix: str) -> pb.Message:
    """Return a copy of a reply whose calls have ids of the server's; see `name_calls`."""
    copy = pb.Message()
    copy.CopyFrom(message)
    name_calls(copy, prefix)
    return copy


def name_calls(message: pb.Message, prefix: str) -> int:
    """Give every call of a reply an id of the server's, `prefix` and its position; return how many there are.

    What the executor wrote as `id` becomes the provider's id, if that is empty; "null" counts as empty. Providers repeat
    ids and leave them out, so nothing depends on theirs. All else stays as it is, opaque data included.
    """
    count = 0
    for block in message.content:
        if block.HasField("tool_call"):
            call = block.tool_call
            if call.provider_id in _NO_ID:
                call.provider_id = "" if call.id in _NO_ID else call.id
            call.id = f"{prefix}{count}"
            count += 1
    return count


__all__ = ["assign_call_ids", "name_calls"]
