"""A graph file that is wrong in many places, and the command line: every problem with its line, and nothing stored."""

from __future__ import annotations

import pytest

from tests.api.test_scenarios_broken_graphs import BROKEN, PROBLEMS
from tests.support.e2e_processes import cli_output

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(60)]


@pytest.mark.parametrize("command", [("graphs", "validate"), ("graphs", "register"), ("run",)])
async def test_a_broken_file_is_told_with_all_its_lines_and_nothing_is_stored(
    server, client, tmp_path, command
):
    file = tmp_path / "broken.yaml"
    file.write_text(BROKEN)

    code, said = await cli_output(server.address, *command, str(file))

    assert code != 0
    for problem in PROBLEMS:
        assert problem in said, said
    assert f"broken.yaml:{BROKEN[: BROKEN.index('to: gone')].count(chr(10)) + 1}" in said
    assert "Traceback" not in said
    assert [each async for each in client.list_graphs()] == []
    assert [run async for run in client.list_runs()] == []


async def test_a_file_that_is_mended_registers_and_runs(server, tmp_path):
    file = tmp_path / "fine.yaml"
    file.write_text(
        "name: fine\nstart: a\nnodes:\n  - id: a\n    assign: {set: {x: '1 + 1'}}\nend: a\n"
    )

    code, said = await cli_output(server.address, "run", str(file), "--json")

    assert code == 0, said
    assert "runCompleted" in said or "run_completed" in said
