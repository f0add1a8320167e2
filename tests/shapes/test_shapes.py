"""Every shape is a graph without problems, with a header that says how to start it, a row in the table, and a test."""

from __future__ import annotations

import re
import shlex

import click
import pytest

from stepgraph_client.command.main import stepgraph
from tests.shapes.stage import SHAPES, shape

NAMES = sorted(path.stem for path in SHAPES.glob("*.yaml"))

#: What must be registered before a shape is started.
INNER = {
    "deep_research": ("researcher", "research_supervisor"),
    "research_supervisor": ("researcher",),
}
#: Warnings that are meant: what is legal but seldom meant is what these shapes are about.
MEANT = {
    # A way that stops while others go on.
    "group_any": {"NO_WAY_TO_END"},
    # Two waits side by side: what comes next needs both anyhow.
    "accumulate": {"WAIT_BESIDE_BRANCH"},
}


@pytest.mark.parametrize("name", NAMES)
async def test_it_has_no_problem_and_no_warning_that_is_not_meant(stage, name):
    for inner in INNER.get(name, ()):
        await stage.client.register_graph(shape(inner))

    answer = await stage.client.validate_graph(shape(name))

    assert not [(problem.code, problem.path) for problem in answer.problems]
    assert {warning.code for warning in answer.warnings} == MEANT.get(name, set()), answer.warnings


@pytest.mark.parametrize("name", NAMES)
def test_it_bears_its_name_and_says_what_it_needs_and_how_it_is_started(name):
    text = (SHAPES / f"{name}.yaml").read_text()
    header = text.partition("\nname:")[0]

    assert shape(name).name == name
    assert "# Needs: " in header
    is_inner = "Run by `" in header
    assert is_inner or f"stepgraph run examples/shapes/{name}.yaml" in header


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_takes_what_its_header_says(name):
    header = (SHAPES / f"{name}.yaml").read_text().partition("\nname:")[0]

    for line in re.findall(r"stepgraph (?:run|graphs|answer) [^|(\n]*", header):
        _, verb, *words = shlex.split(line)
        context = click.Context(stepgraph)
        command = stepgraph.get_command(context, verb)
        assert command is not None, line
        # Raises UsageError for what it does not take.
        command.make_context(verb, words, parent=context)


def test_the_table_lists_every_shape_and_no_other():
    rows = re.findall(r"\[(\w+)\]\((\w+)\.yaml\)", (SHAPES / "README.md").read_text())

    assert sorted(name for name, _ in rows) == NAMES
    assert all(name == file for name, file in rows)


def test_every_shape_is_played():
    tests = [path.read_text() for path in SHAPES.parents[1].glob("tests/shapes/test_*.py")]

    assert not [name for name in NAMES if not any(f'"{name}"' in text for text in tests)]
