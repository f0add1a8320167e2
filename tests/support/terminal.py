"""A command at a pseudo-terminal, and the screen that a person would see.

What the command writes goes through a terminal emulator, so a test looks at the screen and what has scrolled off it, not at escape sequences.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from typing import TYPE_CHECKING, Self

import pyte

from tests.support.e2e_processes import ROOT, STEPGRAPH

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from types import TracebackType

PATIENCE_S = 20.0


class Terminal:
    """`stepgraph` with some words at a terminal of a size. Use it as a context: at its end the command is killed."""

    def __init__(self, *words: str, columns: int = 80, lines: int = 24, **environment: str) -> None:
        self._words = words
        self.columns, self.lines = columns, lines
        self._screen = pyte.HistoryScreen(columns, lines, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self._environment = environment
        self.written = b""
        self._master = self._slave = -1
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", self.lines, self.columns, 0, 0))
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
            and not name.startswith("STEPGRAPH_")
        }
        # The first terminal that the leader of a session opens controls it: so Ctrl-C reaches the command.
        opening = 'exec "$@" <"$0" >"$0" 2>&1'
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", opening, os.ttyname(slave), STEPGRAPH, *self._words],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**kept, "TERM": "xterm-256color", "GRPC_VERBOSITY": "NONE", **self._environment},
        )
        self._slave = slave
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process is not None
        if error is not None:
            print("the screen was:", *self.everything, sep="\n")  # noqa: T201
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._slave)
        os.close(self._master)

    @property
    def screen(self) -> list[str]:
        """The lines that are seen now."""
        return [line.rstrip() for line in self._screen.display]

    @property
    def everything(self) -> list[str]:
        """All lines since the beginning, those that scrolled off the screen included, down to the last that is not empty."""
        gone = [
            "".join(row[at].data for at in range(self.columns)).rstrip()
            for row in self._screen.history.top
        ]
        lines = [*gone, *self.screen]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        """All lines as one text; a line that the terminal wrapped is whole again, since it fills its width."""
        whole = ""
        for line in self.everything:
            whole += line if len(line) == self.columns else f"{line}\n"
        return whole

    def type(self, text: str) -> None:
        """Type a text; "\\x03" is Ctrl-C."""
        os.write(self._master, text.encode())

    def until(self, holds: Callable[[Terminal], bool]) -> None:
        """Read until something holds."""
        end = time.monotonic() + PATIENCE_S
        while not holds(self):
            assert time.monotonic() < end, "\n".join(["it never came to that:", *self.everything])
            assert self._process is not None
            is_over = self._process.poll() is not None
            if not self._read(0.1) and is_over:
                assert holds(self), "\n".join(["it ended before:", *self.everything])

    def shows(self, text: str) -> None:
        """Read until a text is on the screen, or was."""
        self.until(lambda terminal: text in terminal.text)

    def ended(self) -> int:
        """Read until the command has ended, and return its exit code."""
        assert self._process is not None
        end = time.monotonic() + PATIENCE_S
        while self._process.poll() is None:
            assert time.monotonic() < end, "\n".join(["it did not end:", *self.everything])
            self._read(0.1)
        while self._read(0.05):
            pass
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send the command a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.type("\x03")

    def _read(self, seconds: float) -> bool:
        """Take what the command has written; return whether there was anything."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        written = os.read(self._master, 65_536)
        self.written += written
        self._stream.feed(written)
        return bool(written)
