"""Whether what a request refers to is there, before anything is recorded that could never be resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.api.contents import stored_digests
from stepgraph_server.core.errors import Refused

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from stepgraph_server.storage.values import Values


async def refuse_missing_values(request: Message, namespace: str, values: Values) -> None:
    """Look for each stored value that a request refers to.

    Raises:
        Refused: VALUE_NOT_FOUND: one of them is not in the namespace.
    """
    for digest in sorted(set(stored_digests(request))):
        if await values.stat(namespace, digest) is None:
            raise value_not_found(digest)


def value_not_found(digest: str) -> Refused:
    """Return the refusal of a value that is not there."""
    return Refused(
        "VALUE_NOT_FOUND",
        f"there is no value {digest} in this namespace; write it first",
        metadata={"digest": digest},
    )
