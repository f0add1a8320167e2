"""Pages: opaque tokens that say where the next one begins.

Rules: a token is URL-safe text of a version, a digest of the request that it belongs to, and a position. The digest leaves the
page size and the token itself out, so a page may be larger than the one before, and nothing else may change. A token is no
secret and gives no rights: whoever makes one up reads what they may read anyway, from another place.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, cast

from stepgraph_server.api.requests import DEFAULT_NAMESPACE, namespace_of
from stepgraph_server.core import canonical
from stepgraph_server.core.errors import Refused, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

    from stepgraph_server.api.fields import Namespaced
    from stepgraph_server.config import PageSettings

Position: TypeAlias = tuple["str | int", ...]

T = TypeVar("T")

VERSION: Final = 1
_DIGEST_BYTES: Final = 9
_MAX_NUMBER: Final = 2**63 - 1  # what a store can hold; no position has a negative number either
MAX_TOKEN_CHARACTERS: Final = 2_048

#: What may differ between the requests for two pages, or for a watch and its continuation.
_FREE_FIELDS: Final = frozenset({"page_size", "page_token", "resume_token", "view"})


def entries(page_size: int, pages: PageSettings) -> int:
    """Return how many entries a page has that was asked for with this size; the size is not negative."""
    return min(page_size or pages.default_entries, pages.max_entries)


def state_entries(page_size: int, pages: PageSettings) -> int:
    """Return how many messages and variables a page of a state has."""
    return min(page_size or pages.default_state_entries, pages.max_state_entries)


class TokenMaker:
    """Makes tokens for one request; for a watch, which needs one with each response."""

    def __init__(self, request: Message) -> None:
        self._head = _head(request)

    def encode(self, position: Position) -> str:
        """Return the token of a position."""
        content = json.dumps(position, separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._head + content).rstrip(b"=").decode()


def encode(request: Message, position: Position) -> str:
    """Return the token of a position in what `request` asks for."""
    return TokenMaker(request).encode(position)


def decode_page(token: str, request: Message, shape: tuple[type, ...]) -> Position | None:
    """Return the position of a page token, or None for the first page.

    Args:
        token: The token of the request; may be empty.
        request: The request that it came with.
        shape: The types of the members of the position.

    Raises:
        Refused: PAGE_TOKEN_INVALID.
    """
    return _decode(token, request, shape, "page_token", "PAGE_TOKEN_INVALID", "the first page")


def decode_resume(token: str, request: Message, shape: tuple[type, ...]) -> Position | None:
    """Return the position of a resume token, or None if there is none.

    Raises:
        Refused: RESUME_TOKEN_INVALID.
    """
    return _decode(token, request, shape, "resume_token", "RESUME_TOKEN_INVALID", "no token")


def _decode(
    token: str, request: Message, shape: tuple[type, ...], field: str, reason: str, remedy: str
) -> Position | None:
    if not token:
        return None
    position = _read(token, _head(request))
    # bool is an int, and no position has one.
    if (
        position is None
        or tuple(type(member) for member in position) != shape
        or not all(map(_is_storable, position))
    ):
        message = f"{field} is not from this server, or from another request; begin with {remedy}"
        raise Refused(
            reason,
            message,
            metadata={"field": field},
            violations=[Violation(path=field, message=message, reason=reason)],
        )
    return position


def _read(token: str, head: bytes) -> Position | None:
    if len(token) > MAX_TOKEN_CHARACTERS:
        return None
    try:
        content = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        position = json.loads(content[len(head) :]) if content.startswith(head) else None
    except (binascii.Error, ValueError, RecursionError):
        return None
    return tuple(position) if isinstance(position, list) else None


def _is_storable(member: str | int) -> bool:
    """Whether a store can be asked for this: JSON has larger numbers, and halves of characters that no text has."""
    if isinstance(member, int):
        return 0 <= member <= _MAX_NUMBER
    return not any("\ud800" <= character <= "\udfff" for character in member)


def _head(request: Message) -> bytes:
    bound = type(request)()
    bound.CopyFrom(request)
    for name in _FREE_FIELDS.intersection(bound.DESCRIPTOR.fields_by_name):
        bound.ClearField(name)
    # Every request has one, and the empty one is spelled in two ways.
    if namespace_of(cast("Namespaced", bound)) == DEFAULT_NAMESPACE:
        bound.ClearField("namespace")
    digest = canonical.digest(bound).removeprefix("sha256:")
    return bytes((VERSION,)) + bytes.fromhex(digest)[:_DIGEST_BYTES]


def cut(
    found: Sequence[T], limit: int, max_bytes: int, size: Callable[[T], int]
) -> tuple[Sequence[T], bool]:
    """Return what fits on a page, and whether something is left: at most `limit`, and bytes unless it is the first.

    Args:
        found: What was found; one more than `limit` if there is more.
        limit: How many entries the page has at most.
        max_bytes: How many bytes the entries have together; a first one that is larger stands alone.
        size: How many bytes an entry has.
    """
    room = max_bytes
    for index, entry in enumerate(found[:limit]):
        room -= size(entry)
        if room < 0 and index:
            return found[:index], True
    return found[:limit], len(found) > limit
