"""`stepgraph executor anthropic`: host models behind Anthropic's API without a line of code.

Rules: as for its neighbours: the provider's package is imported when the verb is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from stepgraph_client.command.hosting import Hosting, Usual, host_until_told, hosting_options
from stepgraph_client.command.tree import Verb

if TYPE_CHECKING:
    from stepgraph_client.command.calling import Settings
    from stepgraph_client.providers.endpoint import Endpoint
    from stepgraph_client.providers.provider import Provider

ANTHROPIC: Final = Usual(
    package="anthropic",
    base_url="https://api.anthropic.com",
    url_variable="ANTHROPIC_BASE_URL",
    key_variable="ANTHROPIC_API_KEY",
    model_variable="ANTHROPIC_MODEL",
)


@click.command("anthropic", cls=Verb)
@hosting_options(ANTHROPIC)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="The limit of a reply where the graph sets none; the API demands one.  [default: 8192]",
)
@click.option(
    "--api-version",
    metavar="DATE",
    help="The version of the API. 2023-06-01 takes a temperature, for older models.  [default: 2026-10-21]",
)
@click.pass_obj
def anthropic_command(
    settings: Settings, *, hosting: Hosting, max_tokens: int | None, api_version: str | None
) -> None:
    """Host models behind Anthropic's API.

    \b
    stepgraph executor anthropic --model claude-sonnet-5-5
    stepgraph executor anthropic --model 'claude-*' --model clever=claude-opus-5-5
    """  # noqa: D301  (click's mark for a paragraph that it must not wrap)

    def connect(endpoint: Endpoint) -> Provider:
        from stepgraph_client.providers.anthropic_models import (  # noqa: PLC0415  # needs the extra
            AnthropicModels,
        )
        from stepgraph_client.providers.anthropic_request import Terms  # noqa: PLC0415

        usual = Terms()
        terms = Terms(
            api_version=api_version or usual.api_version,
            max_tokens=max_tokens or usual.max_tokens,
        )
        return AnthropicModels.at(endpoint, terms=terms)

    host_until_told(settings, hosting, connect)
