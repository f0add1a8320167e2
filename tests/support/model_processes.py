"""A real model server, and the executors that host its model, as processes.

The server speaks both protocols on one port, so both executors are judged by the same model.
"""

from __future__ import annotations

import sys

from tests.support.e2e_processes import STEPGRAPH, Process, free_port

MODEL_NAME = "gemma-3-270m"
#: Two callers are served at once, and a third one waits.
SLOTS = 2
CONTEXT_TOKENS = 4_096
PROTOCOLS = ("openai", "anthropic")


class ModelServerProcess(Process):
    """The model server on a port of its own; making the model's file takes some seconds the first time."""

    def __init__(self) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        super().__init__(sys.executable, "-m", "tests.support.model_server", str(port))

    async def start(self) -> None:
        """Start it, and return once it answers."""
        await super().start()
        await self.line("ready at")


class ModelExecutorProcess(Process):
    """`stepgraph executor openai` or `… anthropic`, which hosts the model under a name of its own."""

    def __init__(self, server: str, protocol: str, url: str, name: str) -> None:
        # The older version of Anthropic's API, as llama.cpp speaks it: it takes a temperature.
        more = ("--api-version", "2023-06-01") if protocol == "anthropic" else ()
        super().__init__(
            *(STEPGRAPH, "--server", server, "executor", protocol),
            *("--base-url", f"{url}/v1", "--model", f"{name}={MODEL_NAME}"),
            *("--executor-id", name, *more),
        )

    async def start(self) -> None:
        """Start it, and return once the server has welcomed it."""
        await super().start()
        await self.line("connected")
