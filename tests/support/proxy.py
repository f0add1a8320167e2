"""A TCP proxy that does to connections what networks do: cuts them, resets them, swallows them."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Proxy:
    """Stands between a client and a port. Use it as an async context."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.connections = 0
        #: Nothing gets through in either direction, and nobody is told.
        self.is_black_hole = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
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
        """Close all connections."""
        for writer in list(self._writers):
            writer.close()

    def reset(self) -> None:
        """Reset all connections."""
        for writer in list(self._writers):
            linger = struct.pack("ii", 1, 0)
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, up_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, up_writer))
                group.create_task(self._copy(up_reader, writer))
        finally:
            for each in (writer, up_writer):
                self._writers.discard(each)
                each.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                if not self.is_black_hole:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
        writer.close()
