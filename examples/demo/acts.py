"""What the demo shows: a question about a folder, a change that outlives the server, and a survey by a sub-agent."""

from __future__ import annotations

import asyncio
import subprocess
import time
from typing import TYPE_CHECKING

from examples.demo.ledger import counts, repeated
from examples.demo.stage import PATIENCE_S, ROOT, StageError, command_line
from stepgraph.v1.event_pb2 import RunEvent
from stepgraph_client import load_graph
from stepgraph_client.event_printer import EventPrinter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.demo.stage import Stage
    from stepgraph.v1.interrupt_pb2 import Interrupt
    from stepgraph_client import Client, Event, RunHandle

GRAPHS = ROOT / "examples" / "graphs"
EXECUTORS = 2


def say(text: str = "") -> None:
    print(text, flush=True)


def title(text: str) -> None:
    say(f"\n{text}\n{'-' * len(text)}")


async def connected(client: Client, stage: Stage) -> None:
    """Wait until both executors have a session with the server."""
    end = time.perf_counter() + PATIENCE_S
    while time.perf_counter() < end:
        stage.check()
        names = [each.executor_id async for each in client.executors() if each.connected]
        if len(names) == EXECUTORS:
            say(f"  connected: {', '.join(names)}")
            return
        await asyncio.sleep(0.05)
    message = "the executors did not connect"
    raise StageError(message)


# The first act -------------------------------------------------------------------------------------


async def ask(client: Client, stage: Stage, question: str) -> None:
    """Have the rule planner answer a question by looking into the folder."""
    title("1. A question about a folder")
    say(f"folder:   {stage.folder}")
    say(f"question: {question}")
    say("graph:    examples/graphs/ask_folder.yaml, a loop of model and tools")
    if stage.real is None:
        say("model:    the rule planner, which follows rules and works offline; it stands where a")
        say("          language model would, and answers from what the tools really find\n")
    else:
        say(f"model:    {stage.real.model}, hosted by `stepgraph executor {stage.real.provider}`\n")
    await _show(stage, await start(client, "ask_folder", question))


async def _show(stage: Stage, run: RunHandle) -> None:
    """Watch a run to its end, and say what the executors did for it."""
    begin = time.perf_counter()
    printer = EventPrinter()
    async for event in run.events():
        # The answer was shown while it was written; a run's last event has it again.
        printer.print(without_output(event))
    printer.end()
    await run.result()
    say(f"\nThat took {time.perf_counter() - begin:.1f} s. The executors did: {_told(stage, run)}.")


# The second act ------------------------------------------------------------------------------------


async def change(client: Client, stage: Stage, wish: str) -> None:
    """Have a change proposed, kill the server while a person is asked, answer, and see it done once."""
    title("2. A change that a person must approve, and a server that is killed meanwhile")
    say(f"wish:  {wish}")
    say(f"file:  a scratch copy in {stage.scratch}")
    say("graph: examples/graphs/change_file.yaml: plan, propose, approve, apply, verify\n")
    run = await start(client, "change_file", wish)
    printer = EventPrinter(command=f"stepgraph --server {stage.server}")
    # One watch from the first event to the last: it survives the server, and shows nothing twice.
    async for event in run.events():
        printer.print(event)
        question = asked(event)
        if question is not None:
            await crash_and_answer(client, stage, question)
    printer.end()
    await run.result()
    say("\nThe file now:\n")
    for file in sorted(stage.scratch.iterdir()):
        say("\n".join(f"    {line}" for line in file.read_text().splitlines()))
    _prove(stage, run)


async def crash_and_answer(client: Client, stage: Stage, question: Interrupt) -> None:
    """Kill the server, start it again, and answer from the command line."""
    done = counts(stage.ledger.entries(question.run_id))
    say("\nThe run waits for a person. Now the server is killed (kill -9) ...")
    stage.kill_server()
    say("... and started again on the same file.")
    pid = await asyncio.to_thread(stage.start_server)
    say(f"  server {stage.server} (process {pid})")
    await connected(client, stage)
    again = counts(stage.ledger.entries(question.run_id)) - done
    say(f"  done again because of it: {again.total()} tasks\n")
    await shell(stage, "interrupts")
    await shell(stage, "answer", question.interrupt_id, "--proceed", "--as", "you")
    say("\nThe same watch goes on, after the last event that it has shown:\n")


async def shell(stage: Stage, *arguments: str) -> None:
    """Run a command as anybody would, and show it with what it prints."""
    command = command_line(stage.server, *arguments)
    say(f"$ stepgraph {' '.join(command[1:])}")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    say(output.decode().rstrip())
    if process.returncode:
        message = f"the command ended with {process.returncode}"
        raise StageError(message)


def without_output(event: Event) -> Event:
    """Return an event; of a run's end, a copy without what the run gave."""
    if not isinstance(event, RunEvent) or not event.HasField("run_completed"):
        return event
    copy = RunEvent()
    copy.CopyFrom(event)
    copy.run_completed.result.ClearField("output")
    return copy


def asked(event: Event) -> Interrupt | None:
    """Return the question that an event opens."""
    if isinstance(event, RunEvent) and event.HasField("interrupt_opened"):
        return event.interrupt_opened.question
    return None


def _prove(stage: Stage, run: RunHandle) -> None:
    entries = stage.ledger.entries(run.run_id)
    again = repeated(entries)
    say("\nThe executors count what they do, in a file that the server knows nothing of:")
    for what, count in counts(entries).items():
        say(f"  {count} x {what}")
    if again:
        message = f"done more than once: {', '.join(again)}"
        raise StageError(message)
    say(f"{len(entries)} tasks, and none of them was done twice.")


# The third act -------------------------------------------------------------------------------------


async def survey(client: Client, stage: Stage) -> None:
    """Have a plan made, carried out by a sub-agent, and made again from what was found."""
    title("3. A survey: plan, have a sub-agent do a step, plan again, report")
    say(f"folder: {stage.folder}")
    say(
        "graph:  examples/graphs/survey_folder.yaml: the plan changes with what is found, a condition"
    )
    say("        of an executor says when it is enough, and another paradigm writes the report\n")
    await _show(stage, await start(client, "survey_folder", "What is in this folder?"))


# All ----------------------------------------------------------------------------------------------


async def start(client: Client, graph: str, message: str) -> RunHandle:
    """Register a graph of a file, and start a run of it with a message."""
    loaded = load_graph(GRAPHS / f"{graph}.yaml")
    registered = await client.register_graph(loaded.graph)
    return await client.start_run(registered.version.digest, messages=[message])


def _told(stage: Stage, run: RunHandle) -> str:
    parts: Sequence[str] = [
        f"{count} x {what}" for what, count in counts(stage.ledger.entries(run.run_id)).items()
    ]
    return ", ".join(parts)
