"""The demo from its first line to its last: three runs on a stage, and how it ends."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from examples.demo import acts
from examples.demo.real_model import PROVIDERS, NoModelError, real_model
from examples.demo.stage import ROOT, Stage, StageError
from stepgraph_client import Client, StepgraphError

QUESTION = "Where is the function decide defined, and which files call it?"
CHANGE = "Replace 'recieve' with 'receive' in notes.md"

NEXT = """
What to try next
  make demo ARGS="--question 'What does the file Makefile do?'"
  make demo LLM=openai          the same with a real model; it needs OPENAI_API_KEY and OPENAI_MODEL
  make demo ARGS="--folder ~/some/project --question 'Which files mention TODO?'"
  examples/hello.py             the smallest executor, graph and run
  examples/graphs/*.yaml        the three graphs that were run here
  examples/demo/tool_host.py    how tools, an agent and conditions are hosted
  README.md                     the same by hand, step by step
"""


async def play(stage: Stage, given: argparse.Namespace) -> None:
    async with Client(stage.server) as client:
        await acts.connected(client, stage)
        await acts.ask(client, stage, given.question)
        await acts.change(client, stage, given.change)
        await acts.survey(client, stage)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo",
        description="Three runs of agent graphs, on a server and two executors.",
    )
    parser.add_argument("--folder", type=Path, default=ROOT, help="the folder to ask about")
    parser.add_argument("--question", default=QUESTION, help="what to ask about it")
    parser.add_argument("--change", default=CHANGE, help="what to change in the scratch copy")
    parser.add_argument("--llm", choices=PROVIDERS, help="ask a real model of this provider's")
    given = parser.parse_args()
    if not given.folder.is_dir():
        parser.error(f"{given.folder} is not a folder")
    try:
        given.real = real_model(given.llm) if given.llm else None
    except NoModelError as error:
        parser.error(str(error))
    return given


def main() -> int:
    given = arguments()
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with Stage(given.folder.resolve(), given.real) as stage:
            acts.say("Starting a server and two executors, each a process of its own.")
            pid = stage.start_server()
            stage.start_executors()
            acts.say(f"  server {stage.server} (process {pid}), journal {stage.journal}")
            try:
                asyncio.run(play(stage, given))
            except StepgraphError as error:
                # What a real model says is up to it; what its executor says may tell why.
                name = "model-host" if given.real else "server"
                raise stage.failed(str(error), name) from error
            print(NEXT, end="")
    except KeyboardInterrupt:
        print("\nStopped; the processes and the temporary folder are gone.", file=sys.stderr)
        return 130
    except StageError as error:
        print(f"\nThe demo went wrong: {error}", file=sys.stderr)
        return 1
    return 0
