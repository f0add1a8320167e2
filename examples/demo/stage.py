"""The processes of the demo and their folder: started, killed, started again, and cleaned up whatever happens.

Rules: everything that is started is in `_running` before anything else can go wrong, and is gone when the stage closes.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from examples.demo.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from examples.demo.real_model import RealModel

    Handler = Callable[[int, FrameType | None], None] | signal.Handlers

ROOT = Path(__file__).resolve().parents[2]
NOTES = Path(__file__).with_name("notes.md")
#: How long a process may take to be ready, or to end.
PATIENCE_S = 15.0
LOG_LINES = 20


class StageError(Exception):
    """A process did not do what it should; the message has the end of its log."""


class Stage:
    """A server with a journal of its own, two executors, and a scratch copy of a file. Use it as a context manager."""

    def __init__(self, folder: Path, real: RealModel | None = None) -> None:
        self.folder = folder
        self.real = real
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._undo = contextlib.ExitStack()
        self._home = Path()
        self.server = ""

    def __enter__(self) -> Self:
        # SIGTERM ends a process without a word; as an exception it goes through `__exit__`.
        self._on(signal.SIGTERM, _leave)
        self._home = Path(tempfile.mkdtemp(prefix="stepgraph-demo-"))
        self.scratch.mkdir()
        shutil.copy(NOTES, self.scratch)
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave half of it behind; this takes PATIENCE_S a process at most.
        self._on(signal.SIGINT, signal.SIG_IGN)
        for name in reversed(self._running):
            _end(self._running[name])
        shutil.rmtree(self._home, ignore_errors=True)
        self._undo.close()

    def _on(self, number: signal.Signals, handler: Handler) -> None:
        self._undo.callback(signal.signal, number, signal.signal(number, handler))

    @property
    def scratch(self) -> Path:
        """The folder that may be changed."""
        return self._home / "scratch"

    @property
    def journal(self) -> Path:
        """The server's file."""
        return self._home / "stepgraph.db"

    @property
    def ledger(self) -> Ledger:
        """What the executors say they did."""
        return Ledger(self._home / "ledger.jsonl")

    def start_server(self) -> int:
        """Start the server, at the address that it had before if it had one. Returns the process id."""
        self.server = self.server or f"127.0.0.1:{_free_port()}"
        arguments = ("--listen", self.server, "--data", str(self.journal))
        process = self._start("server", "stepgraph_server", *arguments)
        self._await_port(process)
        return process.pid

    def start_executors(self) -> None:
        """Start the process with the model and the one with the tools; they connect by themselves."""
        ledger = str(self._home / "ledger.jsonl")
        shared = ("--server", self.server, "--ledger", ledger)
        if self.real is None:
            self._start("model-host", "examples.demo.model_host", *shared)
        else:
            self._run("model-host", command_line(self.server, *self.real.arguments))
        self._start(
            "tool-host",
            "examples.demo.tool_host",
            *(*shared, "--folder", str(self.folder), "--scratch", str(self.scratch)),
        )

    def kill_server(self) -> None:
        """Kill the server as `kill -9` does: it gets no chance to write or to say anything."""
        process = self._running["server"]
        process.send_signal(signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """See whether everything that was started still runs.

        Raises:
            StageError: something does not.
        """
        for name, process in self._running.items():
            if process.poll() is not None:
                raise self._ended(name)

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self._run(name, (sys.executable, "-m", module, *arguments))

    def _run(self, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._log(name).open("ab") as log:
            # A session of its own: Ctrl-C goes to the demo, and the demo ends what it has started, in order.
            process = self._running[name] = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return process

    def _await_port(self, process: subprocess.Popen[bytes]) -> None:
        host, port = self.server.rsplit(":", 1)
        end = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < end and process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
                return
            time.sleep(0.05)
        raise self._ended("server")

    def failed(self, what: str, name: str = "server") -> StageError:
        """Return what went wrong, with the end of a process's log: the log is gone when the stage closes."""
        log = self._log(name).read_text(errors="replace").splitlines()
        return StageError("\n".join([what, f"The log of {name} ends with:", *log[-LOG_LINES:]]))

    def _ended(self, name: str) -> StageError:
        return self.failed(f"{name} does not run.", name)

    def _log(self, name: str) -> Path:
        return self._home / f"{name}.log"


def command_line(server: str, *arguments: str) -> Sequence[str]:
    """Return `stepgraph …` as it is run here."""
    return (str(Path(sys.executable).with_name("stepgraph")), "--server", server, *arguments)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
