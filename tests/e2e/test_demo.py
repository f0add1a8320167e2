"""The demo runs from one end to the other, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.demo import acts
from examples.demo.stage import Stage
from stepgraph_client import Client, proceed, revise

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


class Demo:
    """A demo whose temporary folders are below one that we see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo", *arguments],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.folder), "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        return self.process

    def leftovers(self) -> list[str]:
        """Return folders and processes that are still there; processes name our folder in their arguments."""
        processes = subprocess.run(
            ["ps", "-eo", "args"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        running = [line for line in processes if f"{self.folder}/stepgraph-demo-" in line]
        return [*(path.name for path in self.folder.glob("stepgraph-demo-*")), *running]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    made = Demo(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGTERM)
        made.process.communicate(timeout=60)


def test_it_shows_all_runs_and_cleans_up(demo: Demo) -> None:
    output, _ = demo.start().communicate(timeout=110)
    assert demo.process is not None
    assert demo.process.returncode == 0, output
    # It quotes the definition; there may be others in this repository, whose source it is asked about.
    assert re.search(r"server/stepgraph_server/core/run\.py(, line |:)\d+", output)
    assert "| def decide(state: RunState" in output
    assert "done again because of it: 0 tasks" in output
    assert re.search(r"\$ stepgraph .*answer q-\w+ --proceed", output)
    assert "1 x apply_change" in output
    assert "none of them was done twice" in output
    assert "Executors receive batches" in output
    # The largest folder was opened, and its parts came into the plan.
    assert '"next":"tests/unit"' in output
    assert "condition has_seen_enough: holds" in output
    assert re.search(r"│ [\d,]+ files with [\d,]+ lines; \d+% of the lines were surveyed", output)
    assert not demo.leftovers()


def test_it_asks_about_any_folder(demo: Demo, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "poem.txt").write_text("one line\nand a heartbeat\n")
    asked = ("--folder", str(project), "--question", "Which files mention heartbeat?")
    output, _ = demo.start(*asked).communicate(timeout=110)
    assert "1 line of poem.txt, first in line 2: and a heartbeat" in output
    assert not demo.leftovers()


async def test_what_a_person_wants_otherwise_is_planned_again(tmp_path: Path) -> None:
    answers = [revise("with 'get'"), proceed()]
    questions = []
    with Stage(tmp_path) as stage:
        stage.start_server()
        stage.start_executors()
        async with Client(stage.server) as client:
            await acts.connected(client, stage)
            wish = "Replace 'recieve' with 'receive' in notes.md"
            run = await acts.start(client, "change_file", wish)
            async for event in run.events():
                question = acts.asked(event)
                if question is not None:
                    questions.append(question.reason.human.prompt)
                    await client.answer(question.interrupt_id, answers.pop(0))
            await run.result()
        text = (stage.scratch / "notes.md").read_text()
    assert "+- Executors receive batches" in questions[0]
    assert "+- Executors get batches" in questions[1]
    assert "Executors get batches" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("line", ["connected:", "kill -9", "answer q-"])
def test_it_cleans_up_when_it_is_stopped(demo: Demo, number: signal.Signals, line: str) -> None:
    process = demo.start()
    assert process.stdout is not None
    for shown in process.stdout:
        if line in shown:
            break
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode in {130, 143}
    end = time.monotonic() + 5
    while demo.leftovers() and time.monotonic() < end:
        time.sleep(0.1)
    assert not demo.leftovers()


def test_a_folder_that_is_not_there_is_said_before_anything_starts(demo: Demo) -> None:
    output, _ = demo.start("--folder", "/nosuch").communicate(timeout=30)
    assert demo.process is not None
    assert demo.process.returncode == 2
    assert "/nosuch is not a folder" in output


def test_it_can_be_stopped_before_it_has_begun() -> None:
    """Ctrl-C during the imports ends it without a traceback."""
    program = """
        import os, runpy, signal, sys

        class Interrupting:
            def find_spec(self, name, path, target=None):
                if name == "examples.demo.acts":
                    os.kill(os.getpid(), signal.SIGINT)

        sys.meta_path.insert(0, Interrupting())
        runpy.run_module("examples.demo", run_name="__main__")
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""
