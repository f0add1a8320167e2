"""Scenarios of numbers: what goes in comes out, digit by digit.

The part with clients of other languages is left out: their JSON text is the same text. PostgreSQL is left out.
"""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph.v1.value_pb2 import Value
from stepgraph_client import Graph, InvalidRequest, expression, otherwise
from tests.support.e2e_house import history, house_with_server

TEXTS = {
    "n": "1",
    "big": "9007199254740993",
    "neg": "-9223372036854775808",
    "f": "1.0",
    "d": "0.1",
    "x": "1e308",
    "huge": "123456789012345678901234567890",
    "list": '[10,20,1.0,9007199254740993,{"a":-0.0}]',
}


def numbers():
    graph = Graph("numbers")
    args = {name: f"{{{{{name}}}}}" for name in TEXTS}
    graph.tool("echo", "echo", args, output="echoed")
    graph.delegate("tell", "teller", " ".join(args.values()), output="told")
    graph.assign("pick", {"picked": "vars.list[vars.n]", "same": "vars.big"})
    graph.assign("exact")
    graph.assign("inexact")
    graph.chain("echo", "tell", "pick")
    graph.edge("pick", "exact", when=expression("vars.big == 9007199254740993"))
    graph.edge("pick", "inexact", when=otherwise())
    graph.end("exact", "inexact")
    return graph


async def working(house):
    executor = house.executor("e1")

    @executor.tool(schema={"type": "object"})
    async def echo(given: dict) -> object:
        return given

    # Text, which nobody parses on the way.
    @executor.agent("teller")
    async def tell(task: str) -> str:
        return task

    await house.work(executor)


def exact(text):
    """Parse JSON so that 1, 1.0 and a neighbour that a double can't tell apart all differ."""
    return json.loads(text, parse_float=lambda number: ("float", Decimal(number)))


def as_json(value):
    return value.json if value.HasField("json") else value.text


async def test_numbers_are_kept_digit_by_digit_from_the_start_to_a_restart(tmp_path):
    data = tmp_path / "runs.db"
    async with house_with_server(data) as (house, _):
        await working(house)
        client = await house.client()
        values = {name: Value(json=text) for name, text in TEXTS.items()}
        run = await client.start_run(numbers(), variables=values)
        row = await run.wait()
        before = await run.state()
        events = await history(client, run.run_id)
    async with house_with_server(data) as (house, _):
        after = await (await house.client()).state(run.run_id)

    assert row.status == RunStatus.RUN_STATUS_COMPLETED, row.failure
    assert row.result.terminal_node == "exact"
    started = events[0].run_started
    assert {n: v.json for n, v in started.input.variables.items()} == TEXTS
    for state in (before, after):
        kept = state.state.variables
        assert {name: as_json(kept[name]) for name in TEXTS} == TEXTS
        assert as_json(kept["picked"]) == "20"
        assert as_json(kept["same"]) == TEXTS["big"]
        assert kept["told"].text == " ".join(TEXTS.values())
        assert exact(kept["echoed"].json) == {name: exact(text) for name, text in TEXTS.items()}
    assert before.state == after.state


@pytest.mark.parametrize(
    "text", ["1e400", "-1e400", "NaN", "Infinity", '{"a": [1, 1e999]}', '{"a":1,"a":2}', "01"]
)
async def test_what_no_double_can_hold_or_json_does_not_have_is_refused_with_its_place(text):
    async with house_with_server() as (house, _):
        client = await house.client()

        with pytest.raises(InvalidRequest) as caught:
            await client.start_run(numbers(), variables={"n": Value(json=text)})

        runs = [run async for run in client.list_runs()]
    assert "n" in str([violation.path for violation in caught.value.violations])
    assert not runs
