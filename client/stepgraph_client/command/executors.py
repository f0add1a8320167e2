"""`stepgraph executors …`: who does the work, and how busy they are."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from stepgraph_client.command.calling import CommandError, Settings, perform
from stepgraph_client.command.completing import complete_executor
from stepgraph_client.command.output import (
    ITEM_FORMS,
    LIST_FORMS,
    Column,
    Output,
    output_option,
)
from stepgraph_client.command.tree import VerbGroup
from stepgraph_client.wording import capability_text, labels_text, names_text, time_text

if TYPE_CHECKING:
    from stepgraph.v1.executor_service_pb2 import Executor
    from stepgraph_client.client import Client

COLUMNS = (
    Column(name="EXECUTOR", style="bold"),
    Column(name="BUSY"),
    Column(name="SINCE"),
    Column(name="LABELS", is_flexible=True),
    Column(name="CAN DO", is_flexible=True),
)
_BAR_WIDTH = 20


@click.group("executors", cls=VerbGroup, default="list")
def executors_group() -> None:
    """Who does the work.

    Without a verb: list them.
    """


async def _all(client: Client) -> list[Executor]:
    return [executor async for executor in client.executors()]


@executors_group.command("list")
@click.option(
    "--can", default="", metavar="TEXT", help="Only those that can do this: a tool, a model."
)
@output_option(*LIST_FORMS)
@click.pass_obj
def list_executors(settings: Settings, can: str, *, out: Output) -> None:
    """List executors that are connected, or were a moment ago, with what they can do and how busy they are."""
    executors = [each for each in perform(settings, _all) if not can or _can(each, can)]
    if out.documents(executors, ids=lambda executor: executor.executor_id):
        return
    what = f" that can do {can}" if can else ""
    out.table(
        COLUMNS,
        (
            (
                each.executor_id,
                load_text(each),
                time_text(each.connect_time),
                labels_text(each.labels),
                names_text(map(capability_text, each.capabilities)),
            )
            for each in executors
        ),
        empty=f"no executors{what} are connected to {settings.server}",
    )


@executors_group.command("get")
@click.argument("executor_id", shell_complete=complete_executor)
@output_option(*ITEM_FORMS)
@click.pass_obj
def get_executor(settings: Settings, executor_id: str, *, out: Output) -> None:
    """Show one executor with all that it can do."""
    executors = {each.executor_id: each for each in perform(settings, _all)}
    found = executors.get(executor_id)
    if found is None:
        near = difflib.get_close_matches(executor_id, executors, 1)
        hint = f"did you mean {near[0]}?" if near else f"`{settings.command} executors` lists them."
        message = f"no executor {executor_id!r} is connected to {settings.server}; {hint}"
        raise CommandError(message)
    if out.document(found, ids=executor_id):
        return
    full = found.in_flight / found.max_in_flight if found.max_in_flight else 1.0
    bar = "█" * round(min(full, 1.0) * _BAR_WIDTH)
    out.facts(
        [
            ("executor", found.executor_id),
            ("state", "connected" if found.connected else "lost; its grace runs"),
            ("busy", f"{load_text(found)}  {bar.ljust(_BAR_WIDTH, '░')}"),
            ("since", time_text(found.connect_time)),
            ("labels", labels_text(found.labels)),
            ("library", found.client_name),
            ("can do", "\n".join(map(capability_text, found.capabilities)) or "nothing"),
        ]
    )


def load_text(executor: Executor) -> str:
    """Return how busy an executor is: "2/8", or that it is lost or takes nothing."""
    if not executor.connected:
        return "lost"
    return f"{executor.in_flight}/{executor.max_in_flight}"


def _can(executor: Executor, what: str) -> bool:
    return any(what in capability_text(each) for each in executor.capabilities)
