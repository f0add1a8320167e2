"""Each module has one test file of its own, at the place where one looks for it, and the reverse."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "tests" / "unit"
SOURCES = (
    ROOT / "server" / "stepgraph_server",
    ROOT / "client" / "stepgraph_client",
    ROOT / "client" / "stepgraph_testing",
)
# `__init__` re-exports, `__main__` starts; neither holds anything to test by itself.
NO_TESTS_OF_THEIR_OWN = {"__init__", "__main__"}

# Modules whose tests stand elsewhere, by their path below the source root, with that place. A module
# is here only if it can't be tested by itself: a contract that every backend must keep, say.
TESTED_ELSEWHERE: dict[str, str] = {}


def expected_test_of(module: Path, package: Path) -> str:
    """Return where the tests of a module stand, relative to tests/unit."""
    path = module.relative_to(package.parent)
    return path.with_name(f"test_{path.stem.lstrip('_')}.py").as_posix()


def modules() -> dict[str, str]:
    """Return the place of the tests of every module, by the module's path below its source root."""
    return {
        module.relative_to(package.parent).as_posix(): expected_test_of(module, package)
        for package in SOURCES
        for module in sorted(package.rglob("*.py"))
        if module.stem not in NO_TESTS_OF_THEIR_OWN
    }


def test_every_module_has_its_test_file() -> None:
    missing = [
        f"{module} -> tests/unit/{test}"
        for module, test in modules().items()
        if module not in TESTED_ELSEWHERE and not (UNIT / test).is_file()
    ]
    assert not missing, "without a test file, which belongs there:\n" + "\n".join(missing)


def test_every_test_file_has_its_module() -> None:
    expected = set(modules().values())
    strays = {
        path.relative_to(UNIT).as_posix()
        for package in SOURCES
        for path in (UNIT / package.name).rglob("test_*.py")
    } - expected
    assert not strays, "no module belongs to:\n" + "\n".join(sorted(strays))


def test_no_two_modules_share_a_test_file() -> None:
    tests = list(modules().values())
    assert len(tests) == len(set(tests)), "`name.py` and `_name.py` stand in one folder"


def test_every_exception_is_true() -> None:
    everything = modules()
    for module, place in TESTED_ELSEWHERE.items():
        assert module in everything, f"{module} is gone: remove the exception"
        assert (ROOT / place).exists(), f"{place}, which tests {module}, is gone"
        assert not (UNIT / everything[module]).exists(), f"{module} has tests: remove the exception"
