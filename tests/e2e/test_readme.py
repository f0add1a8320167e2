"""Every code block of README.md works, in its order, as a reader would use it.

The word after a block's language says what is done with it:

    python NAME, yaml NAME   it is saved as NAME
    sh                       it is run, and must end well
    sh background            it is started, and goes on until the end
    sh until                 it is run again until its output fits the `text` block behind it
    sh elsewhere             it is not run here; its `make` targets must exist
    text                     lines that the last output has, in this order, among others; `…` stands for anything

A server of the test listens on a port of its own, so the README's address is replaced; so is the id of a question.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
ADDRESS = "127.0.0.1:7233"
PATIENCE_S = 20.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    language: str
    word: str
    text: str


def blocks(text: str) -> Iterator[Block]:
    for found in re.finditer(r"^```(\w*) ?([\w./-]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(line, found.group(1), found.group(2), found.group(3))


class Reader:
    """Does what the README says, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._environment = {
            **{name: value for name, value in os.environ.items() if "STEPGRAPH" not in name},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "STEPGRAPH_LISTEN": self._address,
            "STEPGRAPH_SERVER": self._address,
            "NO_COLOR": "1",
        }
        self._background: list[subprocess.Popen[bytes]] = []
        self._question = ""
        self.output = ""

    def follow(self, block: Block) -> None:
        match block.language, block.word:
            case (("python" | "yaml"), name) if name:
                (self._folder / name).write_text(block.text.replace(ADDRESS, self._address))
            case "sh", "":
                code, self.output = self._run(block.text)
                assert code == 0, f"README.md:{block.line} ended with {code}:\n{self.output}"
            case "sh", "background":
                self._start(block)
            case "sh", "elsewhere":
                for target in re.findall(r"^make (\w+)$", block.text, re.MULTILINE):
                    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True)
            case kind:
                pytest.fail(f"README.md:{block.line}: what is a {kind} block?")

    def follow_until(self, block: Block, expected: Block) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            _, self.output = self._run(block.text)
            if fits(self.output, expected.text) or time.monotonic() > end:
                return
            time.sleep(0.1)

    def _run(self, command: str) -> tuple[int, str]:
        command = re.sub(r"q-[0-9a-f]{12}", self._question, command)
        done = subprocess.run(
            ["bash", "-ec", command],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        # What a reader who has the usual port would see.
        output = done.stdout.replace(f" --server {self._address}", "")
        question = re.search(r"q-[0-9a-f]{12}", output)
        self._question = question.group() if question else self._question
        return done.returncode, output

    def _start(self, block: Block) -> None:
        log = self._folder / f"background-{block.line}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-ec", f"exec {block.text}"],
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._background.append(process)
        time.sleep(1.0)
        assert process.poll() is None, f"README.md:{block.line} ended:\n{log.read_text()}"

    def close(self) -> None:
        for process in reversed(self._background):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def fits(output: str, expected: str) -> bool:
    """Whether the output has the expected lines in order; other lines may stand between them."""
    lines = iter(output.splitlines())
    return all(
        any(re.search(pattern(wanted), line) for line in lines) for wanted in expected.splitlines()
    )


def pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.strip().split("…"))


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.close()


def test_the_readme_does_what_it_says(reader: Reader) -> None:
    found = list(blocks(README.read_text()))
    assert len(found) == README.read_text().count("\n```") / 2, "a block was not understood"
    for number, block in enumerate(found):
        if block.word == "until":
            reader.follow_until(block, found[number + 1])
        elif block.language == "text":
            assert fits(reader.output, block.text), f"README.md:{block.line}:\n{reader.output}"
        else:
            reader.follow(block)


def test_the_smallest_example_works(reader: Reader) -> None:
    reader.follow(Block(0, "sh", "background", "stepgraph serve --memory"))
    text = (ROOT / "examples" / "hello.py").read_text()
    assert len(text.splitlines()) < 40
    reader.follow(Block(0, "python", "hello.py", text))
    reader.follow(Block(0, "sh", "", "python hello.py"))
    assert reader.output == "Hello, world!\n"


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)", README.read_text()))))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
