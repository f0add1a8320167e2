"""An executor as it runs in production: its server and its id come from the environment, and SIGTERM lets it finish its work."""

from __future__ import annotations

import logging
import os

from stepgraph_client import Executor

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")

executor = Executor(
    os.environ["STEPGRAPH_SERVER"],
    # One id per process: a second process with the same id would take over from the first.
    executor_id=os.environ.get("EXECUTOR_ID", ""),
    max_in_flight=50,
    # Shorter than the grace of whoever stops it.
    drain_timeout_s=30,
)


@executor.tool()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


executor.run_forever()
