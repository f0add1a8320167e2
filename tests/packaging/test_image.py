"""The image does what its Dockerfile promises, in a container that is made by hand: any user, a read-only root, a volume or none.

The kernel's own rules are at work (mounts, users, a network of its own); what stands in for an engine is
tests/support/packaging_image.py, which carries out the steps of the Dockerfile.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from tests.support.packaging_image import running

ROOT = Path(__file__).resolve().parents[2]
HELLO = (ROOT / "examples" / "hello.py").read_text()
ASKING = """
name: asking
start: ask
end: [done]
nodes:
  - {id: ask, human_approval: Go on?}
  - {id: done, assign: {}}
edges:
  - {from: ask, to: done}
"""
PATIENCE_S = 40.0
SMALL_DISK = 6 * 1024 * 1024

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def until(true, what: str) -> None:
    """Wait for something in a container, which can only be asked."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def until_healthy(container) -> None:
    def is_healthy() -> bool:
        assert container.process.poll() is None, container.log
        return container.healthy()

    until(is_healthy, "it does not become healthy")


def status_of(container, run_id: str) -> str:
    return container.run("stepgraph", "runs", "get", run_id, "--json").text


def volume_of(folder: Path, user: int, mode: int = 0o700) -> Path:
    folder.mkdir()
    os.chown(folder, user, user)
    folder.chmod(mode)
    return folder


def stop(container, image) -> None:
    """Stop it as an engine does."""
    container.process.send_signal(getattr(signal, image.stage.configured("STOPSIGNAL").text))
    ended = container.ended()
    assert ended.code == 0, ended.text
    assert "server.stopped" in ended.text


def test_it_runs_with_a_read_only_root_and_a_volume(image, tmp_path):
    """As an unprivileged user; its health check says so, hello runs, and what it kept is there after it was replaced."""
    volume = volume_of(tmp_path / "volume", 10001)
    with running(image, volume=volume) as container:
        until_healthy(container)
        hello = container.run("python", "-", stdin=HELLO)
        assert hello.text == "Hello, world!\n"
        status = Path(f"/proc/{container.process.pid}/status").read_text()
        assert "Uid:\t10001\t10001\t10001\t10001" in status
        assert container.run("touch", "/opt/stepgraph/x").code != 0, "the root can be written"
        assert "data.ephemeral" not in container.log
        stop(container, image)
    assert {path.stat().st_uid for path in volume.iterdir()} == {10001}
    with running(image, volume=volume) as replaced:
        until_healthy(replaced)
        assert "RUN_STATUS_COMPLETED" in replaced.run("stepgraph", "runs", "list", "--json").text


def test_any_user_may_run_it_on_a_volume_that_is_made_of_the_image(image, tmp_path):
    """An engine gives a named volume the owner and the mode that the folder has in the image."""
    made = (image.layer / "data").stat()
    volume = volume_of(tmp_path / "volume", made.st_uid, made.st_mode & 0o7777)
    with running(image, volume=volume, user="23456:23456") as container:
        until_healthy(container)
        assert container.run("python", "-", stdin=HELLO).text == "Hello, world!\n"
    [journal] = volume.glob("stepgraph.db")
    assert journal.stat().st_mode & 0o777 == 0o600, "others can read what people said"


def test_a_volume_of_its_group_is_enough(image, tmp_path):
    """As Kubernetes gives it with `fsGroup`: the folder is root's, and the group may write."""
    volume = volume_of(tmp_path / "volume", 0)
    os.chown(volume, 0, 10001)
    volume.chmod(0o2775)
    with running(image, volume=volume) as container:
        until_healthy(container)
        assert container.run("python", "-", stdin=HELLO).text == "Hello, world!\n"


@pytest.mark.parametrize("owner", [0, 4711])
def test_a_volume_of_somebody_else_is_told_in_one_line(image, tmp_path, owner):
    """Before anything is served: the path, the user, and what to do."""
    volume = volume_of(tmp_path / "volume", owner, 0o755)
    with running(image, volume=volume) as container:
        ended = container.ended()
    assert ended.code == 4
    assert ended.text == (
        "stepgraph serve: can't open /data/stepgraph.db: user 10001 may not write /data. "
        "Give it to that user (chown 10001 /data)\n"
    )


def test_without_a_volume_it_warns(image):
    with running(image, read_only=False) as container:
        until_healthy(container)
        assert container.log.count("data.ephemeral") == 1
        assert container.run("python", "-", stdin=HELLO).text == "Hello, world!\n"


def test_without_a_volume_and_with_a_read_only_root_it_says_what_to_mount(image):
    with running(image) as container:
        ended = container.ended()
    assert ended.code == 4
    assert ended.text == (
        "stepgraph serve: can't open /data/stepgraph.db: the file system of /data is read-only. "
        "Mount a volume at /data that can be written\n"
    )


def test_a_full_disk_pauses_runs_and_freed_space_lets_them_go_on(image):
    """Nothing is lost or damaged: readiness says no, liveness yes, and the answer that could not be written counts later."""
    with running(image, memory_volume_bytes=SMALL_DISK) as container:
        until_healthy(container)
        assert container.log.count("data.ephemeral") == 1, "a file system in memory"
        started = container.run(
            "sh",
            "-c",
            "cat > /data/g.yaml && stepgraph run /data/g.yaml --detach --run-id r",
            stdin=ASKING,
        )
        assert started.code == 0, started.text
        until(lambda: "_SUSPENDED" in status_of(container, "r"), "it suspends")
        question = container.run("stepgraph", "interrupts", "--json").text
        interrupt_id = question.partition('"interrupt_id": "')[2].partition('"')[0]
        container.run("sh", "-c", "cat /dev/zero > /data/ballast")
        # The log still has room in its file; more is written than that.
        until(lambda: not container.healthy(), "readiness notices a full disk")
        assert container.run("stepgraph", "health", "--live").code == 0
        refused = container.run("stepgraph", "runs", "cancel", "r")
        assert refused.code in {3, 4}, refused.text
        assert "the disk is full" in container.log
        assert container.process.poll() is None
        assert container.run("rm", "/data/ballast").code == 0
        until_healthy(container)
        answered = container.run("stepgraph", "answer", interrupt_id, "--proceed")
        assert answered.code == 0, answered.text
        until(lambda: "_COMPLETED" in status_of(container, "r"), "it goes on")
        check = "import sqlite3; print(sqlite3.connect('/data/stepgraph.db').execute('PRAGMA integrity_check').fetchone())"
        assert container.run("python", "-c", check).text == "('ok',)\n"
        stop(container, image)


def test_what_builds_does_not_run(image):
    """The image has what it runs, compiled, and no pip in its environment."""
    environment = image.layer / "opt" / "stepgraph"
    packages = next(environment.glob("lib/python*/site-packages"))
    assert not (packages / "pip").exists()
    assert list(packages.glob("stepgraph_server/__pycache__/app.*.pyc"))
    assert not (image.layer / "src").exists()


def test_a_backup_is_taken_of_the_volume_while_it_runs(image, tmp_path):
    """From another process, which only reads."""
    volume = volume_of(tmp_path / "volume", 10001)
    with running(image, volume=volume) as container:
        until_healthy(container)
        assert container.run("python", "-", stdin=HELLO).code == 0
        copy = tmp_path / "copy.db"
        with sqlite3.connect(volume / "stepgraph.db") as source, sqlite3.connect(copy) as target:
            source.backup(target)
        assert container.healthy()
    with sqlite3.connect(copy) as found:
        assert found.execute("PRAGMA integrity_check").fetchone() == ("ok",)
