"""What a failure does not need is left out."""

from __future__ import annotations

import pytest

from tests.simulation.shrink import MOST_TRIES, shrink

NAMES = [f"kind:{number}" for number in range(40)]


@pytest.mark.parametrize("needed", [{"kind:7"}, {"kind:0", "kind:39"}, {"kind:3", "kind:4"}, set()])
def test_only_what_is_needed_stays(needed: set[str]) -> None:
    assert set(shrink(NAMES, needed.issubset)) == needed


def test_what_stays_is_in_order() -> None:
    assert shrink(NAMES, {"kind:20", "kind:5"}.issubset) == ["kind:5", "kind:20"]


def test_it_gives_up_in_time() -> None:
    """Whatever is tried costs a course."""
    tries = []

    def fails(names: frozenset[str]) -> bool:
        tries.append(names)
        return len(names) == len(NAMES)

    many = [f"kind:{number}" for number in range(1_000)]
    assert shrink(many, fails) == many
    assert len(tries) <= MOST_TRIES
