"""What is shipped, made once for all tests: the wheel, the sdist, and the image."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support import packaging_image

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def pip_cache():
    """The cache of pip of this machine, so that packages come over the network once."""
    found = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=False
    )
    # pip says nothing where its cache is switched off.
    folder = Path(found.stdout.strip() or tempfile.mkdtemp(prefix="pip-cache-"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def context(tmp_path_factory):
    """The repository as .dockerignore lets a builder see it."""
    rules = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    assert rules[0] == "*", "everything is left out that is not named"
    named = [rule[1:] for rule in rules if rule.startswith("!")]
    left_out = [rule.removeprefix("**/") for rule in rules[1:] if not rule.startswith("!")]
    folder = tmp_path_factory.mktemp("context")
    for name in named:
        if (ROOT / name).is_dir():
            ignore = shutil.ignore_patterns(*left_out)
            shutil.copytree(ROOT / name, folder / name, ignore=ignore)
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def image(context, pip_cache):
    """The image of the Dockerfile, built by hand."""
    if reason := packaging_image.missing():
        pytest.skip(f"the image can't be built by hand here: {reason}")
    with tempfile.TemporaryDirectory(
        dir=packaging_image.MEMORY, prefix="stepgraph-image-"
    ) as place:
        yield packaging_image.build(ROOT / "Dockerfile", context, Path(place), pip_cache)
