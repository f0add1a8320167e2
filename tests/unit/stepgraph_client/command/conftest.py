"""The command line against the fake server."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from stepgraph_client.command.main import stepgraph


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def nothing_at_home(monkeypatch, tmp_path):
    """What whoever runs the tests has set at home is none of their business."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    for name in ("SERVER", "NAMESPACE", "TIMEOUT", "COLOR", "CONFIG"):
        monkeypatch.delenv(f"STEPGRAPH_{name}", raising=False)


@pytest.fixture
def run(server):
    """Call the command line, as if it was typed."""

    def call(*words: str, address: str = "", typed: bytes | None = None) -> Ended:
        result = CliRunner().invoke(
            stepgraph,
            ["--server", address or server.address, *words],
            prog_name="stepgraph",
            input=typed,
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(code=result.exit_code, out=result.stdout, err=result.stderr)

    return call
