"""What users of pytest get: a fixture, and paths side by side where they part."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path as FilePath

import pytest

from stepgraph_testing import pytest_plugin
from stepgraph_testing.history import Path

ROOT = FilePath(__file__).resolve().parents[3]


def shown(left, right, op="=="):
    lines = pytest_plugin.pytest_assertrepr_compare(op, left, right)
    return None if lines is None else "\n".join(lines)


def test_paths_are_shown_where_they_part():
    """Which node was expected, and which was taken."""
    told = shown(Path(["think", "act"]), ["think", "answer"])
    assert "expected: think → answer" in told
    assert "taken:    think → act" in told
    assert told.endswith("they part after 1 nodes: expected answer, taken act")
    assert shown(Path(["a"]), ["a", "b"]).endswith("after 1 nodes: expected b, taken the end")
    assert shown(Path(["a", "b"]), ["a"]).endswith("after 1 nodes: expected the end, taken b")


def test_everything_else_is_left_to_pytest():
    """Other comparisons, and other things."""
    assert shown(Path(["a"]), ["a"], "!=") is None
    assert shown(["a"], ["b"]) is None
    assert shown(Path(["a"]), 5) is None


@pytest.mark.e2e
def test_a_test_of_a_user_gets_a_workbench(tmp_path):
    """In a process of its own, with pytest-asyncio as it is by default; and nothing of a server is loaded without need."""
    test = """
        import sys
        import pytest
        from stepgraph_client import Graph

        LOADED = "stepgraph_server" in sys.modules

        @pytest.mark.asyncio
        async def test_it(workbench):
            assert not LOADED
            graph = Graph("g")
            graph.assign("only")
            run = await workbench.start(graph)
            await run.finished()
            assert run.path == ["other"]
    """
    (tmp_path / "test_users.py").write_text(textwrap.dedent(test))
    # By its name, too, where the installed metadata is older than the entry point.
    command = [sys.executable, "-m", "pytest", "-q", "test_users.py", "-p", "no:cacheprovider"]
    path = ":".join(str(ROOT / each) for each in ("protos", "server", "client"))
    ended = subprocess.run(
        [*command, *pytest_plugin_arguments()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": path, "PATH": ""},
    )
    assert "they part after 0 nodes: expected other, taken only" in ended.stdout, ended.stdout
    assert "1 failed" in ended.stdout


def pytest_plugin_arguments():
    from importlib.metadata import entry_points  # noqa: PLC0415

    names = {each.value for each in entry_points(group="pytest11")}
    return [] if pytest_plugin.__name__ in names else ["-p", pytest_plugin.__name__]
