from __future__ import annotations

import shutil
import subprocess
import time

import click
import pytest
from click.shell_completion import ShellComplete

from stepgraph.v1.executor_service_pb2 import Executor
from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph_client.command import completing
from stepgraph_client.command.main import stepgraph
from stepgraph_client.files import parse_graph


def completed(server, *words: str, incomplete: str = "", address: str = "") -> list[str]:
    complete = ShellComplete(stepgraph, {}, "stepgraph", "_STEPGRAPH_COMPLETE")
    found = complete.get_completions(["--server", address or server.address, *words], incomplete)
    return [each.value for each in found]


def test_commands_and_options_are_completed(server) -> None:
    assert completed(server, "runs", incomplete="h") == ["history"]
    assert "--server" in completed(server, "runs", "list", incomplete="--s")
    assert completed(server, "interrupts", incomplete="w") == ["watch"]


def test_runs_graphs_questions_and_executors_are_completed(server) -> None:
    for run_id in ("alpha", "beta"):
        server.add_run(run_id)
    server.graphs["restock"] = [parse_graph("name: restock\nnodes:\n  - {id: a, assign: {}}").graph]
    open_one = InterruptStatus.INTERRUPT_STATUS_OPEN
    server.questions["q-1"] = Interrupt(interrupt_id="q-1", status=open_one)
    server.executors = [Executor(executor_id="shop")]
    assert completed(server, "runs", "watch") == ["alpha", "beta"]
    assert completed(server, "runs", "get", incomplete="b") == ["beta"]
    assert completed(server, "run") == ["restock"]
    assert completed(server, "answer") == ["q-1"]
    assert completed(server, "executors", "get") == ["shop"]


def test_a_choice_is_bounded(server, monkeypatch) -> None:
    monkeypatch.setattr(completing, "MAX_ITEMS", 3)
    for n in range(9):
        server.add_run(f"r{n}")
    assert len(completed(server, "runs", "get")) == 3


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_whatever_goes_wrong_is_silent_and_soon_over(server, capsys, address) -> None:
    started = time.monotonic()
    assert completed(server, "runs", "get", address=address) == []
    assert time.monotonic() - started < 5
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("shell", completing.SHELLS)
def test_each_shell_has_its_script(run, shell) -> None:
    out = run("completion", shell).out
    assert "_STEPGRAPH_COMPLETE" in out
    assert f"stepgraph completion {shell}" in out.splitlines()[0]
    program = shutil.which(shell)
    if program:
        subprocess.run([program, "-n"], input=out, text=True, check=True)


def test_another_shell_is_typed_wrongly(run) -> None:
    assert run("completion", "tcsh").code == 2
    assert isinstance(completing.completion_command, click.Command)
