"""The wheel and the sdist, in environments that have nothing else: for a client, and for a server.

Packages come from the package index as pip is set up on this machine, or from pip's cache.
"""

from __future__ import annotations

import email
import os
import re
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.e2e_processes import free_port

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300

#: What only servers, or ready-made executors, need. None of it may come along for a client.
FOR_EXTRAS = ("cel-expr-python", "opentelemetry-sdk", "orjson", "httpx2", "openai", "anthropic")

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * PATIENCE_S)]


def run(*command: str | Path, cwd: Path | None = None, code: int = 0, **more: str) -> str:
    """Run a command that knows nothing of this repository, and return what it said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, "NO_COLOR": "1", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


class Environment:
    """An empty environment of this interpreter, with its own pip."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=True)
        self.bin = folder / "bin"

    def install(self, *what: str) -> None:
        # With the pinned versions, so that a release of somebody else does not break this test.
        lock = str(ROOT / "requirements.lock")
        run(self.bin / "pip", "install", "--quiet", "--constraint", lock, *what)

    def packages(self) -> set[str]:
        listed = run(self.bin / "pip", "list", "--format=freeze")
        return {line.partition("==")[0].lower() for line in listed.splitlines()}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """What is uploaded: built from a tree without anything that git does not know."""
    tree = tmp_path_factory.mktemp("tree")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "hatchling", "build", "-d", "dist", cwd=tree)
    return tree / "dist"


@pytest.fixture(scope="session")
def wheel(built):
    [found] = built.glob("*.whl")
    return found


@pytest.fixture(scope="session")
def sdist(built):
    [found] = built.glob("*.tar.gz")
    return found


@pytest.fixture(scope="session")
def client(wheel, tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("client"))
    environment.install(str(wheel))
    return environment


@pytest.fixture(scope="session")
def server(wheel, tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("server"))
    environment.install(f"{wheel}[server]")
    return environment


def test_the_wheel_has_what_it_needs_and_nothing_else(wheel):
    """Types, the schema's sources for other languages, and the tables of the journal; no tests."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        about = email.message_from_bytes(file.read(metadata))
    packages = {name.partition("/")[0] for name in names}
    packages -= {name for name in packages if name.endswith(".dist-info")}
    assert {"stepgraph", "stepgraph_client", "stepgraph_server"} <= packages
    assert packages <= {"stepgraph", "stepgraph_client", "stepgraph_server", "stepgraph_testing"}
    for package in packages:
        assert f"{package}/py.typed" in names, "type checkers would ignore it"
    protos = {path.name for path in (ROOT / "protos" / "stepgraph" / "v1").glob("*.proto")}
    assert {name.rpartition("/")[2] for name in names if name.endswith(".proto")} == protos
    migrations = (ROOT / "server/stepgraph_server/storage/migrations").glob("*.sql")
    assert all(f"stepgraph_server/storage/migrations/{path.name}" in names for path in migrations)
    assert not [name for name in names if "/test_" in name or name.startswith("tests/")]
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert about["License-Expression"] == "Apache-2.0"


def test_the_sdist_builds_the_same_wheel(wheel, sdist, tmp_path):
    """Byte for byte, so nothing that is needed is left out of it."""
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    [tree] = tmp_path.iterdir()
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=tree)
    [again] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert {i.filename: i.CRC for i in first.infolist()} == {
            i.filename: i.CRC for i in second.infolist()
        }


def test_a_client_comes_without_what_a_server_needs(client):
    assert "grpcio" in client.packages()
    assert not client.packages() & set(FOR_EXTRAS)
    everything = (
        "import stepgraph_client as c; print(len([getattr(c, name) for name in c.__all__]))"
    )
    assert int(run(client.bin / "python", "-c", everything)) > 0
    run(client.bin / "python", "-c", "import stepgraph_client.sync")


def test_a_client_has_the_command_line(client):
    listed = run(client.bin / "stepgraph", "--help")
    assert all(command in listed for command in ("run", "runs", "graphs", "serve"))
    assert re.fullmatch(r"stepgraph \d+\.\d+\.\d+\n", run(client.bin / "stepgraph", "--version"))
    refused = run(client.bin / "stepgraph", "--server", "127.0.0.1:1", "health", code=4)
    assert "can't be reached" in refused


def test_serve_says_what_to_install(client):
    said = run(client.bin / "stepgraph", "serve", "--memory", code=3)
    assert "pip install 'stepgraph[server]'" in said
    assert "Traceback" not in said


def test_a_server_runs_hello(server, tmp_path):
    """From an empty folder, as a stranger would: install, serve, run the smallest example, stop."""
    address = f"127.0.0.1:{free_port()}"
    hello = (ROOT / "examples" / "hello.py").read_text().replace("127.0.0.1:7233", address)
    (tmp_path / "hello.py").write_text(hello)
    with subprocess.Popen(
        [server.bin / "stepgraph", "serve", "--data", "runs.db", "--listen", address],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert "is ready" in process.stdout.readline()
            run(server.bin / "stepgraph", "--server", address, "health")
            assert run(server.bin / "python", "hello.py", cwd=tmp_path) == "Hello, world!\n"
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE_S)
    assert code == 0
