"""Where the programs in examples/ are run: a server at a free port, and a folder in which they name that."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What the examples name. They are read by people, so they take no arguments.
ADDRESS = "127.0.0.1:7233"


class Stage:
    """A server at a free port, and a folder in which examples name that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{found.getsockname()[1]}"
        self.server = subprocess.Popen(
            [sys.executable, "-m", "stepgraph_server", "--memory", "--listen", self.address],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def run(self, example: str) -> str:
        """Return what an example prints."""
        program = self._folder / Path(example).name
        text = (ROOT / "examples" / example).read_text()
        assert ADDRESS in text
        program.write_text(text.replace(ADDRESS, self.address))
        done = subprocess.run(
            [sys.executable, program],
            cwd=ROOT,
            env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End the server."""
        self.server.terminate()
        self.server.wait(30)
