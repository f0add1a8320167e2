"""The programs in examples/ do what they say, each in front of a server of its own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
#: What the examples name. They are read by people, so they take no arguments.
ADDRESS = "127.0.0.1:7233"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


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


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.server.terminate()
    made.server.wait(30)


def test_hello(stage: Stage) -> None:
    """The smallest executor, graph and run."""
    assert stage.run("hello.py") == "Hello, world!\n"


def test_a_fork_with_another_result(stage: Stage) -> None:
    """What had been done before the fork is not done again."""
    printed = stage.run("fork_with_result.py")
    assert re.search(r"the run:  declined, it costs 113; called find_supplier, price\n", printed)
    assert re.search(r"the fork: ordered at the lamp shop; called order\n", printed)
