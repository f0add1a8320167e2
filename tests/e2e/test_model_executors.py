"""`stepgraph executor …` as a process: it hosts models, tells its troubles, stops in order, and the demo can be played with it."""

from __future__ import annotations

import json
import signal
import sys

import pytest

from stepgraph.v1.run_pb2 import RunStatus
from stepgraph_client import Graph, retry
from tests.support.e2e_house import history
from tests.support.e2e_processes import STEPGRAPH, Process, cli_output
from tests.support.model_stand_in import ModelStandIn
from tests.support.model_stand_in_replies import (
    Answer,
    Call,
    Delivery,
    Raw,
    Text,
    Trouble,
    calls,
    says,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

KEY = "sk-canary-0123456789"
PROTOCOLS = ("openai", "anthropic")
#: What both providers say when they are asked for their models, which an executor does once, at its start.
LISTED = Raw(body=b'{"data": [{"id": "real-1"}], "has_more": false}')


def asked(provider):
    """The requests for replies, as JSON."""
    return [each.json for each in provider.received if each.method == "POST"]


@pytest.fixture
async def provider():
    async with ModelStandIn() as stand_in:
        yield stand_in


@pytest.fixture(params=PROTOCOLS)
def protocol(request, provider, monkeypatch):
    """A protocol, with its provider's usual variables set for the processes that are started."""
    name = request.param
    url = provider.openai_url if name == "openai" else provider.anthropic_url
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", url)
    monkeypatch.setenv(f"{name.upper()}_API_KEY", KEY)
    return name


def hosting(server, protocol, *words):
    return Process(
        *(STEPGRAPH, "--server", server.address, "executor", protocol, "--executor-id", "host"),
        *("--model", "clever=real-1", "--label", "tier=big", *words),
    )


def saying():
    policy = retry(max_tries=2, first_delay="20ms", jitter=0)
    graph = Graph("say", default_model="clever", retry=policy)
    graph.llm("say", streaming=True, output="said")
    graph.end("say")
    return graph


async def test_it_hosts_a_model_and_stops_in_order(server, client, provider, protocol):
    """A model is hosted under another name; told to stop, the process finishes what it has and ends well."""
    held = Delivery(hold_after=3)
    provider.script(
        LISTED, says("hello"), Answer(parts=(Text(text="the last one"),), delivery=held)
    )
    async with hosting(server, protocol) as process:
        await process.line("connected")
        (executor,) = [each async for each in client.executors()]
        assert (executor.executor_id, executor.labels["tier"]) == ("host", "big")
        run = await client.start_run(saying(), messages=["go"], selector={"tier": "big"})
        assert await run.result() == "hello"
        assert asked(provider)[0]["model"] == "real-1"

        last = await client.start_run(saying(), messages=["go"])
        await provider.sent(3, request=2)
        process.signal(signal.SIGTERM)
        await process.line("stops: takes nothing more")
        provider.release()
        assert await last.result() == "the last one"
        assert await process.ended() == 0
    assert not [line for line in process.lines if "warning" in line]


async def test_the_key_is_in_nothing_that_is_said(server, client, provider, protocol):
    """With everything logged as JSON, and a provider that echoes the key, it is in no line and no event."""
    refused = Trouble(status=401, message=f"Incorrect key {KEY}")
    provider.script(refused, Trouble(status=500, message=f"{KEY} failed"), refused)
    async with hosting(server, protocol, "--json", "--log-level", "debug") as process:
        await process.line('"session.opened"')
        run = await client.start_run(saying(), messages=["go"])
        row = await run.wait()
        await process.line('"task.failed"', count=2)
        process.signal(signal.SIGINT)
        assert await process.ended() == 0
        lines = [json.loads(line) for line in process.lines]
    assert (row.status, row.failure.code) == (
        RunStatus.RUN_STATUS_FAILED,
        "PROVIDER_UNAUTHENTICATED",
    )
    assert f"Check the key in {protocol.upper()}_API_KEY." in row.failure.message
    actions = {line["action"] for line in lines}
    assert {"executor.starting", "executor.model_unknown", "session.opened"} <= actions
    assert "canary" not in f"{lines} {row} {await history(client, run.run_id)}"


async def test_troubles_at_the_start_say_what_to_do(protocol, monkeypatch):
    """No key, no model, and a key that can't be one, each end the command before anything is connected."""
    upper = protocol.upper()
    server = "127.0.0.1:1"
    code, said = await cli_output(server, "executor", protocol)
    assert (code, f"{upper}_MODEL" in said) == (2, True)
    monkeypatch.setenv(f"{upper}_BASE_URL", "https://models.example/v1")
    monkeypatch.delenv(f"{upper}_API_KEY")
    code, said = await cli_output(server, "executor", protocol, "--model", "m")
    assert code == 2
    assert f"there is no key for https://models.example/v1: put it into {upper}_API_KEY" in said
    monkeypatch.setenv("OTHER", "sk\tcanary")
    words = ("--model", "m", "--api-key-env", "OTHER")
    code, said = await cli_output(server, "executor", protocol, *words)
    assert (code, "the key in OTHER" in said, "canary" in said) == (2, True, False)


async def test_another_process_of_its_id_is_told_why_it_ended(server, provider, protocol):
    """A process whose id another one has taken ends with what to do."""
    provider.script(LISTED, LISTED)
    async with hosting(server, protocol) as first:
        await first.line("connected")
        async with hosting(server, protocol) as second:
            await second.line("connected")
            assert await first.ended() == 3
    assert "Give each process an executor_id of its own" in "\n".join(first.lines)


async def test_the_demo_is_played_with_a_real_model(provider, protocol, monkeypatch, tmp_path):
    """`make demo LLM=…` asks the provider in all three acts, and ends well."""
    monkeypatch.setenv(f"{protocol.upper()}_MODEL", "real-1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    change = '{"file": "notes.md", "find": "recieve", "replace": "receive"}'
    provider.script(
        LISTED,
        calls(Call(name="list_files", args='{"path": "."}')),
        says("There is a poem."),
        calls(Call(name="propose_change", args=change)),
        says('{"next": "", "later": [], "why": "it is small"}'),
        says("It holds one poem."),
    )
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "poem.txt").write_text("one line\n")
    demo = (sys.executable, "-m", "examples.demo", "--llm", protocol)
    async with Process(*demo, "--folder", str(tmp_path / "project")) as process:
        # Each act has a patience of its own.
        for act in ("connected: ", "2. A change", "3. A survey", "What to try next"):
            await process.line(act)
        code = await process.ended()
        output = "\n".join(process.lines)
    assert code == 0, output
    assert f"real-1, hosted by `stepgraph executor {protocol}`" in output
    assert "There is a poem." in output
    assert "Executors receive batches" in output
    assert "It holds one poem." in output
    assert [each["model"] for each in asked(provider)] == ["real-1"] * 5


async def test_the_demo_asks_which_model_is_meant(protocol, monkeypatch):
    """Without the variable that names the model, the demo says which it is before anything starts."""
    monkeypatch.delenv(f"{protocol.upper()}_MODEL", raising=False)
    async with Process(sys.executable, "-m", "examples.demo", "--llm", protocol) as process:
        assert await process.ended() == 2
    assert f"Put its name into {protocol.upper()}_MODEL" in "\n".join(process.lines)
