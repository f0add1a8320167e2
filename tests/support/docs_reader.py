"""A reader who does everything that a page says, in its order, in a folder of its own.

Rules: what tests/docs/README.md promises to whoever writes a page. The page's address of the server is replaced by one that is
free, and so is the id of a question, which nobody can know beforehand; all else happens as it stands there.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from grpc_tools import protoc
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from stepgraph_client import GraphFileError, parse_graph
from stepgraph_server.app import graph_defaults
from stepgraph_server.config import Settings
from stepgraph_server.core.validation.definition import check
from tests.support.e2e_processes import free_port

if TYPE_CHECKING:
    from tests.support.docs_blocks import Block

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1:7233"
PATIENCE_S = 30.0
#: What a server or an executor says when it can be used.
READY = re.compile(r"is ready on|connected to|server\.ready")
QUESTION = re.compile(r"q-[0-9a-f]{12}")


class Reader:
    """Follows pages. Close it when done: it ends what they have started."""

    def __init__(self, folder: Path) -> None:
        self.output = ""
        self._folder = folder
        self._address = f"127.0.0.1:{free_port()}"
        self._environment = {
            **{name: value for name, value in os.environ.items() if "STEPGRAPH" not in name},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "STEPGRAPH_LISTEN": self._address,
            "STEPGRAPH_SERVER": self._address,
            "HOME": str(folder),
            "NO_COLOR": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self._background: list[subprocess.Popen[bytes]] = []
        self._question = ""

    def follow_all(self, page: list[Block]) -> None:
        """Do what all blocks of a page say."""
        for number, block in enumerate(page):
            if block.reason:
                continue
            if block.word == "until":
                self._follow_until(block, page[number + 1])
            else:
                self.follow(block)

    def follow(self, block: Block) -> None:
        """Do what one block says."""
        if "." in block.word:
            path = self._folder / block.word
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self._here(block.text))
        match block.language, block.word:
            case "text", _:
                assert fits(self.output, block.text), (
                    f"{block.place}: expected\n{block.text}\nin\n{self.output}"
                )
            case (("yaml" | "json" | "proto"), _):
                _check(block)
            case "python", "":
                self._finish(block, f"python - <<'END_OF_BLOCK'\n{block.text}\nEND_OF_BLOCK")
            case (("sh" | "bash"), ""):
                self._finish(block, block.text)
            case (("sh" | "bash"), "fails"):
                self._finish(block, block.text, fails=True)
            case (("sh" | "bash"), "background"):
                self._start(block)
            case "console", "":
                self._type(block)
            case language, word if "." not in word:
                message = f"{block.place}: nobody knows what to do with a block {language} {word}"
                raise AssertionError(message)
            case _:
                pass  # it was saved, for others to use

    def _follow_until(self, block: Block, expected: Block) -> None:
        end = time.monotonic() + PATIENCE_S
        while True:
            _, self.output = self._run(block.text)
            if fits(self.output, expected.text) or time.monotonic() > end:
                return
            time.sleep(0.1)

    def _finish(self, block: Block, command: str, *, fails: bool = False) -> None:
        code, self.output = self._run(command)
        assert (code != 0) == fails, f"{block.place} ended with {code}:\n{self.output}"

    def _type(self, block: Block) -> None:
        """Run what stands behind each `$ `, and compare what follows it."""
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            while command.endswith("\\"):
                more, _, expected = expected.partition("\n")
                command = f"{command}\n{more}"
            self._finish(block, command)
            assert fits(self.output, expected), (
                f"{block.place}: `{command}` was to say\n{expected}\nand said\n{self.output}"
            )

    def _run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-ec", self._here(command)],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=2 * PATIENCE_S,
            check=False,
        )
        # What a reader who has the usual port would see.
        output = done.stdout.replace(f" --server {self._address}", "")
        output = output.replace(self._address, ADDRESS)
        question = QUESTION.search(output)
        self._question = question.group() if question else self._question
        return done.returncode, output

    def _start(self, block: Block) -> None:
        log = self._folder / f"background-{block.line}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-ec", f"exec {self._here(block.text)}"],
                cwd=self._folder,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._background.append(process)
        end = time.monotonic() + PATIENCE_S
        while not READY.search(log.read_text()):
            assert process.poll() is None, f"{block.place} ended:\n{log.read_text()}"
            assert time.monotonic() < end, f"{block.place} is not ready:\n{log.read_text()}"
            time.sleep(0.02)

    def _here(self, text: str) -> str:
        """Return a text of the page with what is different here."""
        return QUESTION.sub(self._question or r"\g<0>", text.replace(ADDRESS, self._address))

    def close(self) -> None:
        """End what was started, the last first."""
        for process in reversed(self._background):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _command(block: Block) -> str:
    if block.language == "python":
        return f"python - <<'END_OF_BLOCK'\n{block.text}\nEND_OF_BLOCK"
    return block.text


def fits(output: str, expected: str) -> bool:
    """Whether the output has the expected lines in order; other lines may stand between them, and `…` is anything."""
    lines = iter(output.splitlines())
    return all(
        any(re.search(_pattern(wanted), line) for line in lines) for wanted in expected.splitlines()
    )


def _pattern(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.strip().split("…"))


def _check(block: Block) -> None:
    """Read a block of data as what it is: a graph is validated, a schema is compiled."""
    match block.language:
        case "json":
            json.loads(block.text)
        case "proto":
            _compile(block)
        case _:
            try:
                documents = list(YAML(typ="safe", pure=True).load_all(block.text))
            except YAMLError as error:
                message = f"{block.place}: {error}"
                raise AssertionError(message) from error
            if any(isinstance(each, dict) and "nodes" in each for each in documents):
                _validate(block)


def _validate(block: Block) -> None:
    try:
        file = parse_graph(block.text, file=block.place)
    except GraphFileError as error:
        raise AssertionError(str(error)) from error
    checked = check(file.graph, graph_defaults(Settings()))
    problems = [f"{each.path}: {each.message} [{each.code}]" for each in checked.findings.problems]
    if Path(block.word).name.startswith("broken"):
        assert problems, f"{block.place} is to be broken, and is not"
        return
    assert not problems, f"{block.place} is no graph that could run:\n" + "\n".join(problems)


def _compile(block: Block) -> None:
    text = block.text if "syntax" in block.text else f'syntax = "proto3";\n{block.text}'
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "block.proto"
        source.write_text(text)
        places = (folder, ROOT / "protos", Path(protoc.__file__).parent / "_proto")
        paths = [f"--proto_path={place}" for place in places]
        status = protoc.main(["protoc", *paths, f"--descriptor_set_out={folder}/out", str(source)])
    assert status == 0, f"{block.place} does not compile"
