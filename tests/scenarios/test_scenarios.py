"""Every scenario gives the trace that stands in its file, and breaks no invariant on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.core_scenario import play, read_scenes

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_gives_its_trace(path: Path, request: pytest.FixtureRequest) -> None:
    text, differences = play(path)
    # Without its conftest, in a run of all tests, the option does not exist.
    if request.config.getoption("--rewrite", default=False):
        path.write_text(text, encoding="utf-8")
        return
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_scenario_says_what_is_to_be_seen(path: Path) -> None:
    scenes, _ = read_scenes(path.read_text(encoding="utf-8"))
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert scenes


def test_there_are_scenarios() -> None:
    assert FILES
