"""The Dockerfile says what an image of ours must: small, unprivileged, probed, and told how to stop."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.packaging_dockerfile import parse

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"


@pytest.fixture
def described():
    return parse(DOCKERFILE.read_text())


def test_hadolint_has_nothing_to_say():
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run(
        [hadolint, "--failure-threshold", "style", DOCKERFILE],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_stages_stand_on_one_pinned_base(described):
    """To the patch release and the distribution; a digest can be given in its place."""
    assert len(described.stages) == 2
    assert {stage.base for stage in described.stages} == {described.arguments["PYTHON"]}
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", described.arguments["PYTHON"])


def test_nothing_is_built_where_it_runs(described):
    *_, last = described.stages
    ran = " ".join(step.text for step in last.steps if step.name == "RUN")
    assert not re.search(r"\b(pip|apt-get|gcc|make)\b", ran)
    copied = [step for step in last.steps if step.name == "COPY"]
    assert [step.flags.get("from") for step in copied] == ["build"]


def test_it_is_unprivileged_by_number_and_says_how_it_is_probed_and_stopped(described):
    *_, last = described.stages
    assert last.configured("USER").text == "10001:10001"
    assert last.command("HEALTHCHECK") == ["stepgraph", "health"]
    assert last.configured("STOPSIGNAL").text == "SIGTERM"
    assert last.command("ENTRYPOINT") == ["stepgraph"]
    assert last.command("CMD")[0] == "serve"
    labels = {name for step in last.steps if step.name == "LABEL" for name in step.pairs}
    assert {
        "org.opencontainers.image." + name for name in ("title", "version", "revision")
    } <= labels


def test_its_version_is_that_of_the_package(described):
    [version] = re.findall(
        r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    *_, last = described.stages
    assert [step.pairs["VERSION"] for step in last.steps if step.text.startswith("VERSION")] == [
        version
    ]


def test_everything_that_is_copied_may_be_seen_by_the_builder(described):
    seen = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    first, *_ = described.stages
    copied = {name for step in first.steps if step.name == "COPY" for name in step.words[:-1]}
    assert copied == seen


def test_an_instruction_that_nobody_checks_is_refused():
    with pytest.raises(ValueError, match="ONBUILD"):
        parse("FROM python:3\nONBUILD RUN true\n")
