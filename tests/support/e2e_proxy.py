"""A TCP proxy between a client and a server that does what networks do: cut, reset, swallow answers, delay, go silent.

It keeps its own address while servers behind it come and go.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_RESET = struct.pack("ii", 1, 0)


class Network:
    """A proxy. Use it as an async context; change its attributes while it runs."""

    def __init__(self, target: str) -> None:
        #: Where connections lead, host:port; may change.
        self.target = target
        #: Connections so far.
        self.connections = 0
        #: What the client sends gets through, and what the server answers does not.
        self.swallows_answers = False
        #: Nothing gets through either way, and nobody is told.
        self.is_black_hole = False
        #: How long each piece takes longer.
        self.delay_s = 0.0
        #: Set once an answer was swallowed.
        self.swallowed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._connected = asyncio.Condition()

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Close all connections, as a proxy does that is replaced."""
        for writer in list(self._writers):
            writer.close()

    def reset(self) -> None:
        """Reset all connections, as a crashed host does."""
        for writer in list(self._writers):
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def connected(self, count: int) -> None:
        """Return once so many connections were made in all."""
        async with asyncio.timeout(30), self._connected:
            await self._connected.wait_for(lambda: self.connections >= count)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.partition(":")
        try:
            up_reader, up_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        async with self._connected:
            self.connections += 1
            self._connected.notify_all()
        ends = {writer, up_writer}
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, up_writer, is_answer=False))
                group.create_task(self._copy(up_reader, writer, is_answer=True))
        finally:
            self._writers -= ends
            for end in ends:
                end.close()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while data := await reader.read(65_536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if is_answer and self.swallows_answers:
                    self.swallowed.set()
                elif not self.is_black_hole:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        writer.close()
