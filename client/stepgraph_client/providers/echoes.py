"""What a provider wants back unchanged with a block, as the schema's opaque `provider_data`.

Rules: a conversation may have been written by several providers. What one of them left is sent back to the same one only; for
all others it is as if it were not there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def packed(provider: str, content: Mapping[str, object]) -> bytes:
    """Return content that a provider wants back, marked as its own; nothing if there is none."""
    if not content:
        return b""
    return json.dumps({provider: content}, ensure_ascii=False, separators=(",", ":")).encode()


def unpacked(provider: str, data: bytes) -> dict[str, object]:
    """Return what a provider left; empty if the data is somebody else's, or none of ours."""
    try:
        content = json.loads(data) if data else None
    except (ValueError, RecursionError):
        content = None  # bytes of an executor that packs otherwise
    found = content.get(provider) if isinstance(content, dict) else None
    return found if isinstance(found, dict) else {}
