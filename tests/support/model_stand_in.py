"""A stand-in for a model provider: a local HTTP server that speaks the protocols of OpenAI and Anthropic.

    async with ModelStandIn() as provider:
        provider.script(says("hello"), Trouble(status=429, headers={"retry-after": "2"}))
        ...  # base URL of OpenAI clients: provider.openai_url; of Anthropic's: provider.anthropic_url
        assert provider.received[0].json["model"] == "m"

Rules: every request takes the next reply of the script, whichever protocol it speaks; without one it is answered with 501, so a
call too many is seen. Each request is recorded before it is answered. It is written on asyncio's streams alone, because what
matters here is what frameworks keep from doing: a write that ends inside a character, a connection that breaks off.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self, assert_never

from tests.support import model_stand_in_anthropic as anthropic
from tests.support import model_stand_in_openai as openai
from tests.support.model_stand_in_replies import Answer, Raw, Trouble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import ModuleType, TracebackType

    from tests.support.model_stand_in_replies import Delivery, Reply

PATIENCE_S: Final = 20.0
#: Both providers list models under one path; only errors and raw bytes make sense there.
ROUTES: Final[Mapping[tuple[str, str], ModuleType]] = {
    ("POST", openai.PATH): openai,
    ("POST", anthropic.PATH): anthropic,
    ("GET", "/v1/models"): openai,
}
NO_ROUTE: Final[Reply] = Trouble(status=404, kind="not_found_error", message="no such route")
NO_REPLY: Final[Reply] = Trouble(
    status=501, kind="no_reply", message="the script has no further reply"
)


@dataclass(slots=True, kw_only=True)
class Received:
    """One request, and what became of its caller.

    Attributes:
        headers: By names in lower case.
        sent_events: How many events of a stream were written.
        ended: The reply was sent, or can't be any more.
        disconnected: The caller went away before it had all of the reply.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    sent_events: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    disconnected: bool = False

    @property
    def json(self) -> dict[str, Any]:
        """The body."""
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


class ModelStandIn:
    """A provider on loopback. Use it as an async context; at its end every connection is closed."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self._script: deque[Reply] = deque()
        self._released = asyncio.Event()
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

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
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def anthropic_url(self) -> str:
        """The base URL for clients of Anthropic's API."""
        assert self._server is not None, "it is an async context"
        host, port = self._server.sockets[0].getsockname()
        return f"http://{host}:{port}"

    @property
    def openai_url(self) -> str:
        """The base URL for clients of OpenAI's API."""
        return f"{self.anthropic_url}/v1"

    def script(self, *replies: Reply) -> None:
        """Add replies for the next requests."""
        self._script.extend(replies)

    def release(self) -> None:
        """Let go on what `Delivery.hold_after` holds, now and from now on."""
        self._released.set()

    async def until(self, holds: Callable[[ModelStandIn], bool]) -> None:
        """Return once something holds of what was received."""
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: holds(self))

    async def sent(self, count: int, *, request: int = 0) -> Received:
        """Return a request once so many events of its reply were written."""
        await self.until(
            lambda all_: (
                len(all_.received) > request and all_.received[request].sent_events >= count
            )
        )
        return self.received[request]

    # ---- connections -----------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio serves in tasks"
        self._connections.add(task)
        try:
            # A caller may close between or inside requests, and may be cut off by us.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._exchange(reader, writer):
                    pass
        except asyncio.CancelledError:
            pass  # The end of the context; asyncio would report it as an error of the connection.
        finally:
            self._connections.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether another may come on this connection."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        pairs = (line.partition(":") for line in head[1:] if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(method=method, path=path, headers=headers, body=body)
        self.received.append(received)
        await self._note()
        # Nothing is pipelined by our clients, so what is read next is the end of the connection.
        gone = asyncio.get_running_loop().create_task(reader.read(1))
        try:
            return await self._reply(received, writer, gone)
        except ConnectionError:
            received.disconnected = True
            return False
        finally:
            gone.cancel()
            await asyncio.gather(gone, return_exceptions=True)
            received.ended.set()
            await self._note()

    async def _reply(
        self, received: Received, writer: asyncio.StreamWriter, gone: asyncio.Task[bytes]
    ) -> bool:
        protocol = ROUTES.get((received.method, received.path.partition("?")[0]))
        if protocol is None:
            protocol, reply = openai, NO_ROUTE
        else:
            reply = self._script.popleft() if self._script else NO_REPLY
        match reply:
            case Answer() if received.json.get("stream"):
                events = protocol.events(reply, received.json)
                return await self._stream(
                    received, writer, gone, (reply.delivery, protocol, events)
                )
            case Answer():
                if reply.delivery.hold_after is not None and await self._held(gone):
                    received.disconnected = True
                    return False
                await _send_whole(writer, Raw(body=protocol.body(reply, received.json)))
            case Trouble():
                body, status = protocol.trouble_body(reply), reply.status
                await _send_whole(writer, Raw(body=body, status=status, headers=reply.headers))
            case Raw():
                await _send_whole(writer, reply)
            case _:
                assert_never(reply)
        return True

    async def _stream(
        self,
        received: Received,
        writer: asyncio.StreamWriter,
        gone: asyncio.Task[bytes],
        what: tuple[Delivery, ModuleType, Iterator[bytes]],
    ) -> bool:
        delivery, protocol, events = what
        # With the first event: a provider that holds its reply back from the start says nothing at all.
        head = _head(200, "text/event-stream", {"transfer-encoding": "chunked"})
        for event in events:
            if received.sent_events == delivery.hold_after and await self._held(gone):
                received.disconnected = True
            if gone.done():
                received.disconnected = True
            if received.disconnected or received.sent_events == delivery.drop_after:
                return False
            writer.write(head)
            head = b""
            if received.sent_events == delivery.trouble_after:
                await _send_chunk(writer, protocol.trouble_event(delivery.trouble), 0)
                break
            await _send_chunk(writer, event, delivery.write_bytes)
            received.sent_events += 1
            await self._note()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    async def _held(self, gone: asyncio.Task[bytes]) -> bool:
        """Wait for the release; return whether the caller has gone meanwhile."""
        released = asyncio.get_running_loop().create_task(self._released.wait())
        try:
            await asyncio.wait((released, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            released.cancel()
        return gone.done()

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _send_chunk(writer: asyncio.StreamWriter, data: bytes, size: int) -> None:
    size = size or len(data)
    for at in range(0, len(data), size):
        piece = data[at : at + size]
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        # A turn for whoever reads in this process, or several writes would be read as one.
        await asyncio.sleep(0)


async def _send_whole(writer: asyncio.StreamWriter, raw: Raw) -> None:
    headers = {**raw.headers, "content-length": str(len(raw.body))}
    writer.write(_head(raw.status, raw.content_type, headers) + raw.body)
    await writer.drain()


def _head(status: int, content_type: str, headers: Mapping[str, str]) -> bytes:
    # 529, Anthropic's word for being overloaded, is in no list.
    known = {each.value: each.phrase for each in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {known.get(status, 'Overloaded')}"]
    lines += [
        f"{name}: {value}" for name, value in {"content-type": content_type, **headers}.items()
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
