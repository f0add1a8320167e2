"""The processes that are measured: a server on a free port of loopback with a journal of its own, and an executor."""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT = Path(__file__).resolve().parent.parent
#: How long a process may take to be ready, or to end.
PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that runs."""

    address: str
    journal: Path
    pid: int

    def cpu_us(self) -> float:
        """Return the CPU time that the server has used, its own and the kernel's for it. Linux only."""
        # After the name, which may have spaces and brackets of its own.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        user, system = int(fields[11]), int(fields[12])
        return (user + system) * 1e6 / os.sysconf("SC_CLK_TCK")

    def peak_mib(self) -> float:
        """Return the most memory that the server has had. Linux only."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def journal_bytes(self) -> int:
        """Return the size of the journal, whether it is in the file or still in its write-ahead log."""
        with contextlib.closing(sqlite3.connect(f"file:{self.journal}?mode=ro", uri=True)) as file:
            (pages,) = file.execute("PRAGMA page_count").fetchone()
            (size,) = file.execute("PRAGMA page_size").fetchone()
        return int(pages) * int(size)


@contextlib.contextmanager
def running_server(
    folder: Path, launcher: Sequence[str], variables: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Start a server, and stop it at the end. `launcher` is what comes before the arguments.

    What the environment says to OpenTelemetry does not count, but for `variables`: figures must not depend on it.
    """
    ours = {name: text for name, text in os.environ.items() if not name.startswith("OTEL_")}
    environment = {**ours, **(variables or {})}
    address = f"127.0.0.1:{_free_port()}"
    journal = folder / "stepgraph.db"
    arguments = ["--listen", address, "--data", str(journal)]
    log = folder / "server.log"
    with (
        log.open("wb") as output,
        _process([*launcher, *arguments], output.fileno(), environment) as process,
    ):
        _wait_for_port(address, process, log)
        yield Server(address=address, journal=journal, pid=process.pid)


@contextlib.contextmanager
def running_executor(server: Server, module: str) -> Iterator[None]:
    """Start an executor, wait until it is connected, and stop it at the end."""
    command = [sys.executable, "-m", module, "--server", server.address]
    with _process(command, subprocess.PIPE) as process:
        assert process.stdout is not None, "it is a pipe"
        line = process.stdout.readline()
        if b"ready" not in line:
            message = f"the executor did not start: {line.decode(errors='replace')}"
            raise RuntimeError(message)
        yield


@contextlib.contextmanager
def running_sink() -> Iterator[str]:
    """Start a collector that keeps nothing, give its address, and stop it at the end."""
    with _process([sys.executable, "-m", "benchmarks.trace_sink"], subprocess.PIPE) as process:
        assert process.stdout is not None, "it is a pipe"
        yield process.stdout.readline().decode().split()[1]


@contextlib.contextmanager
def _process(
    command: Sequence[str], output: int, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    # A session of its own: Ctrl-C goes to us, and we stop what we have started, in order.
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _wait_for_port(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    host, port = address.rsplit(":", 1)
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
            return
        time.sleep(0.05)
    message = f"the server did not start:\n{log.read_text(errors='replace')}"
    raise RuntimeError(message)
