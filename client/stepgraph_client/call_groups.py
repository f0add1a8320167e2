"""What all groups of calls share: the connection, the caller, the namespace, pages and values.

Rules: a group (`run_calls.py`, `graph_calls.py`, `interrupt_calls.py`) has the methods of one service; `Client` is all groups
together. A group knows no other, except that runs have questions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from stepgraph_client import transfers
from stepgraph_client.calls import WATCH_PATIENCE, Caller, Patience
from stepgraph_client.connection import DEFAULT_SERVER, Connection
from stepgraph_client.values import from_value, to_value

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import grpc

    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.connection import Stubs

#: Entries of one page of a list; the most that servers give.
PAGE_SIZE = 500


class PagedRequest(Protocol):
    """A request for a page of a list."""

    page_token: str


class PagedResponse(Protocol):
    """A page of a list."""

    next_page_token: str


PageQ = TypeVar("PageQ", bound=PagedRequest)
PageR = TypeVar("PageR", bound=PagedResponse)


class CallGroup:
    """The base of all groups of calls."""

    def __init__(
        self,
        server: str = DEFAULT_SERVER,
        *,
        namespace: str = "default",
        credentials: grpc.ChannelCredentials | None = None,
        patience: Patience | None = None,
        watch_patience: Patience = WATCH_PATIENCE,
    ) -> None:
        self.server = server
        self.namespace = namespace
        self._connection = Connection(server, credentials)
        self._caller = Caller(server, patience or Patience())
        self._watch_patience = watch_patience

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection. Runs go on."""
        await self._connection.close()

    @property
    def _stubs(self) -> Stubs:
        return self._connection.stubs

    async def _pages(
        self, method: grpc.aio.UnaryUnaryMultiCallable[PageQ, PageR], request: PageQ
    ) -> AsyncIterator[PageR]:
        """Yield the pages of a list. A page may be short, or empty, and not be the last."""
        while True:
            page = await self._caller.unary(method, request)
            yield page
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    # Values -----------------------------------------------------------------------------------------------------

    async def as_value(self, given: object) -> Value:
        """Return something as a Value: text, JSON, bytes, a pydantic model. What is too large to be sent inline is stored first.

        Raises:
            TypeError: it can't be written as JSON.
            TooMuch: it is larger than the server takes at all.
        """
        value = to_value(given)
        content = transfers.content_of(value)
        if content is None or len(content[0]) <= transfers.MAX_INLINE_BYTES:
            return value
        return await self.put_value(value)

    async def put_value(self, given: object) -> Value:
        """Store something, and return the reference to it. Storing what is there is harmless."""
        return await transfers.write(
            self._caller, self._stubs.values, self.namespace, to_value(given)
        )

    async def get_value(self, value: Value) -> object:
        """Return a value as Python has it; what is stored is read first.

        Raises:
            NotFound: there is no such stored value.
        """
        if value.WhichOneof("kind") != "stored":
            return from_value(value)
        stored, content = await transfers.read(
            self._caller, self._stubs.values, self.namespace, value.stored.digest
        )
        return from_value(transfers.inline(stored, content))

    async def read_value(self, digest: str) -> bytes:
        """Return the bytes of a stored value, "sha256:…"."""
        _, content = await transfers.read(self._caller, self._stubs.values, self.namespace, digest)
        return content
