"""`stepgraph config`: which settings count, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stepgraph_client.command.output import Column, Form, Output, Plain, output_option
from stepgraph_client.command.tree import Verb, find_settings

if TYPE_CHECKING:
    from stepgraph_client.command.settings import File

COLUMNS = (
    Column(name="SETTING", style="bold"),
    Column(name="VALUE"),
    Column(name="FROM", style="cyan"),
    Column(name="VARIABLE"),
    Column(name="MEANING", is_flexible=True),
)


@click.command("config", cls=Verb)
@output_option(Form.TABLE, Form.JSON, Form.YAML)
@click.pass_context
def config_command(context: click.Context, *, out: Output) -> None:
    """Show each setting and its source.

    Secrets are not shown.
    A flag counts before a variable, that before the file, and that before the default. `stepgraph serve --settings` shows the
    settings of a server.
    """
    found, file = find_settings(context)
    settings: list[Plain] = [
        {
            "name": each.setting.name,
            "value": each.shown,
            "source": each.source,
            "variable": each.setting.variable,
        }
        for each in found.values()
    ]
    content: dict[str, Plain] = {
        "file": str(file.path or ""),
        "file_exists": file.exists,
        "settings": settings,
    }
    if out.document(content):
        return
    out.text(f"file: {file.path or 'none'}{_state(file)}", "dim")
    out.table(
        COLUMNS,
        (
            (
                each.setting.name,
                each.shown or "none",
                each.source,
                each.setting.variable,
                each.setting.meaning,
            )
            for each in found.values()
        ),
        empty="no settings",
    )


def _state(file: File) -> str:
    return "" if file.exists else " (not there, which is fine)"
