"""Real processes for tests: the server on a data file, executors, and the command line.

A server keeps its address through all restarts, on a port that no outgoing connection gets by chance. What a process says
is read line by line as it comes, so that a test waits for a line and never for a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]
STEPGRAPH = str(Path(sys.executable).with_name("stepgraph"))
PATIENCE_S = 20.0
# Below the range from which the kernel serves whoever asks for any port.
PORTS = range(20_000, 30_000)


def free_port() -> int:
    """Return a port that nobody listens on."""
    while True:
        port = SystemRandom().choice(PORTS)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


class Process:
    """A process whose lines are kept and can be waited for. Use it as an async context: at its end it is killed."""

    def __init__(self, *command: str) -> None:
        self.command = command
        self.lines: list[str] = []
        self._said = asyncio.Condition()
        self._has_said_all = False
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            print(f"what {self.command[-1]} said:", *self.lines[-60:], sep="\n")  # noqa: T201
        await self.kill()

    async def start(self) -> None:
        """Start it."""
        self._has_said_all = False
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "GRPC_VERBOSITY": "NONE"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        # Owned by this process: it ends with what it reads.
        self._reading = asyncio.get_running_loop().create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            async with self._said:
                self.lines.append(line.decode().rstrip("\n"))
                self._said.notify_all()
        async with self._said:
            self._has_said_all = True
            self._said.notify_all()

    async def line(self, text: str, *, count: int = 1) -> str:
        """Return the line that holds a text for the `count`-th time, once it was said."""

        def found() -> list[str]:
            return [line for line in self.lines if text in line]

        async with asyncio.timeout(PATIENCE_S), self._said:
            await self._said.wait_for(lambda: len(found()) >= count or self._has_said_all)
        assert len(found()) >= count, "\n".join([f"it ended without {text!r}:", *self.lines[-40:]])
        return found()[count - 1]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Wait until it has ended, and return its exit code."""
        assert self._process is not None
        assert self._reading is not None
        async with asyncio.timeout(PATIENCE_S):
            await self._reading
            return await self._process.wait()

    async def kill(self) -> None:
        """Let it have no chance to do anything more."""
        if self.is_running:
            self.signal(signal.SIGKILL)
        if self._process is not None:
            await self.ended()


class ServerProcess(Process):
    """`stepgraph serve` on a file. It can be killed and started again."""

    def __init__(self, data: Path, *settings: str, port: int = 0) -> None:
        self.data = data
        self.address = f"127.0.0.1:{port or free_port()}"
        flags = [flag for setting in settings for flag in ("--set", setting)]
        super().__init__(
            *(STEPGRAPH, "serve"),
            *("--data", str(data), "--listen", self.address, "--log-format", "json", *flags),
        )
        self.starts = 0

    async def start(self) -> None:
        """Start it, and return once it answers."""
        await super().start()
        self.starts += 1
        await self.line('"server.ready"', count=self.starts)

    async def restart(self) -> None:
        """Kill it, and start it again on the same file and address."""
        await self.kill()
        await self.start()

    def faults(self) -> list[str]:
        """Return what it logged as an error."""
        logged = [json.loads(line) for line in self.lines if line.startswith("{")]
        errors = [str(entry) for entry in logged if entry["level"] in {"error", "critical"}]
        return [*errors, *(line for line in self.lines if line.startswith("Traceback"))]


class ExecutorProcess(Process):
    """An executor of `e2e_executor.py` in a process of its own; its lines are the ledger of what it did."""

    def __init__(self, server: str, executor_id: str) -> None:
        super().__init__(sys.executable, "-m", "tests.support.e2e_executor", server, executor_id)

    async def start(self) -> None:
        """Start it, and return once the server has welcomed it."""
        await super().start()
        await self.line("connected")


@asynccontextmanager
async def cli(server: str, *arguments: str) -> AsyncIterator[Process]:
    """Run a command of the command line against a server."""
    async with Process(STEPGRAPH, "--server", server, *arguments) as process:
        yield process


async def cli_output(server: str, *arguments: str) -> tuple[int, str]:
    """Run a command to its end, and return its exit code and what it printed."""
    async with cli(server, *arguments) as process:
        code = await process.ended()
        return code, "\n".join(process.lines)
