"""`stepgraph executor …`: host models without a line of code.

Rules: a verb is a provider, with a file of its own; what all of them share is in `hosting.py`.
"""

from __future__ import annotations

import click

from stepgraph_client.command.executor_anthropic import anthropic_command
from stepgraph_client.command.executor_openai import openai_command
from stepgraph_client.command.tree import VerbGroup


@click.group("executor", cls=VerbGroup)
def executor_group() -> None:
    """Host models in this process, until Ctrl-C. `stepgraph executors` shows who is connected."""


executor_group.add_command(openai_command)
executor_group.add_command(anthropic_command)
