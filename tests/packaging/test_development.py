"""What `make venv` sets up is all that `make test` needs: a clone that is new has no other packages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: Installed by `make test-model` alone: 400 MB that nothing else needs.
ON_ITS_OWN = {"test-model"}


def test_a_fresh_clone_has_what_every_extra_brings():
    """An extra that `make venv` leaves out makes tests fail, but only on machines that never had it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed = re.findall(r"-e '\.\[([^]]+)\]'", (ROOT / "Makefile").read_text())

    assert [set(each.split(",")) for each in installed] == [
        set(project["optional-dependencies"]) - ON_ITS_OWN,
        ON_ITS_OWN,
    ]
