"""`make venv` uses the Python that was named, or says why not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def make(tmp_path: Path):
    """Run make in a folder that has the Makefile and no Python but those that a test puts there."""
    for name in ("Makefile", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("sh", "tail", "rm", "touch"):
        (tools / tool).symlink_to(shutil.which(tool))

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [shutil.which("make"), *words],
            cwd=tmp_path,
            env={"PATH": str(tools), "HOME": os.environ.get("HOME", "/")},
            capture_output=True,
            text=True,
            check=False,
        )

    return call


def test_a_named_python_that_is_not_there_is_never_replaced_by_another(make, tmp_path) -> None:
    """The named one is refused by its path, and nothing is made."""
    ended = make("venv", "PYTHON=/nonexistent/python")
    assert ended.returncode != 0
    assert "PYTHON=/nonexistent/python is no Python 3.11 or newer" in ended.stderr
    assert not (tmp_path / ".venv").exists()
    assert make("test", "PYTHON=/nonexistent/python").returncode != 0


def test_a_named_python_is_refused_even_if_everything_is_there(make, tmp_path) -> None:
    """A .venv of another Python does not hide a wrong name."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.installed").touch()
    assert make("venv").returncode == 0
    assert make("venv", "PYTHON=/nonexistent/python").returncode != 0


def test_without_any_python_each_that_was_tried_is_named_with_what_it_is(make, tmp_path) -> None:
    """An old one is told with its version, and one that is not there as such."""
    old = tmp_path / "tools/python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1 && exit 0\nexit 1\n')
    old.chmod(0o755)
    ended = make("venv")
    assert ended.returncode != 0
    assert (
        "stepgraph needs Python 3.11 or newer, and none of these is one that runs:" in ended.stderr
    )
    assert "  python3: Python 3.9.1" in ended.stderr
    assert "  python3.12: not found" in ended.stderr
