"""`stepgraph executors`: who does the work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepgraph_client.command.calling import Settings, perform
from stepgraph_client.command.output import plain, print_json, print_table
from stepgraph_client.wording import capability_text, labels_text, names_text, time_text

if TYPE_CHECKING:
    from stepgraph.v1.executor_service_pb2 import Executor
    from stepgraph_client.client import Client


@click.command("executors")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def executors_command(settings: Settings, *, as_json: bool) -> None:
    """List executors that are connected, or were a moment ago, with what they can do and how busy they are."""

    async def work(client: Client) -> list[Executor]:
        return [executor async for executor in client.executors()]

    executors = perform(settings, work)
    if as_json:
        print_json([plain(executor) for executor in executors])
        return
    print_table(
        ("EXECUTOR", "BUSY", "SINCE", "LABELS", "CAN DO"),
        (
            (
                each.executor_id,
                f"{each.in_flight}/{each.max_in_flight}" if each.connected else "lost",
                time_text(each.connect_time),
                labels_text(each.labels),
                names_text(map(capability_text, each.capabilities)),
            )
            for each in executors
        ),
        empty=f"no executors are connected to {settings.server}",
    )
