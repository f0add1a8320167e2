"""The executor of deploy/ works as it stands there: it takes its server from the environment, and ends when it is told."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.support.e2e_processes import Process, ServerProcess, cli_output

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


async def test_the_example_executor_greets(tmp_path, monkeypatch):
    async with ServerProcess(tmp_path / "runs.db") as server:
        monkeypatch.setenv("STEPGRAPH_SERVER", server.address)
        monkeypatch.setenv("EXECUTOR_ID", "pod-1")
        async with Process(sys.executable, str(DEPLOY / "executor.py")) as executor:
            code, said = await cli_output(
                server.address, "run", str(DEPLOY / "hello.yaml"), "--input", "world"
            )
            assert code == 0, said
            assert "Hello, world!" in said
            _, listed = await cli_output(server.address, "executors", "--json")
            assert '"executor_id": "pod-1"' in listed
            executor.signal(signal.SIGTERM)
            assert await executor.ended() == 0, executor.lines
        assert server.faults() == []
