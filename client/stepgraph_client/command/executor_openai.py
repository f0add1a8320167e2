"""`stepgraph executor openai`: host models behind an OpenAI-compatible API without a line of code.

Rules: the provider's package is imported when the verb is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from stepgraph_client.command.hosting import Hosting, Usual, host_until_told, hosting_options
from stepgraph_client.command.tree import Verb

if TYPE_CHECKING:
    from stepgraph_client.command.calling import Settings
    from stepgraph_client.providers.endpoint import Endpoint
    from stepgraph_client.providers.openai_dialect import MaxTokensField
    from stepgraph_client.providers.provider import Provider

OPENAI: Final = Usual(
    package="openai",
    base_url="https://api.openai.com/v1",
    url_variable="OPENAI_BASE_URL",
    key_variable="OPENAI_API_KEY",
    model_variable="OPENAI_MODEL",
)


@click.command("openai", cls=Verb)
@hosting_options(OPENAI)
@click.option(
    "--max-tokens-field",
    type=click.Choice(["max_tokens", "max_completion_tokens"]),
    help="How the API calls the limit of tokens.  [default: as it is known for the base URL]",
)
@click.option(
    "--send-thinking",
    is_flag=True,
    help="Send thoughts of earlier replies back, which some reasoning models need.",
)
@click.option(
    "--no-stream-usage",
    is_flag=True,
    help="Don't ask streams for their usage, which old servers refuse. Streamed replies then count as free.",
)
@click.pass_obj
def openai_command(
    settings: Settings,
    *,
    hosting: Hosting,
    max_tokens_field: MaxTokensField | None,
    send_thinking: bool,
    no_stream_usage: bool,
) -> None:
    """Host models behind an API that is compatible with OpenAI's.

    \b
    stepgraph executor openai --model gpt-5-mini
    stepgraph executor openai --base-url http://127.0.0.1:8080/v1 --model clever=qwen3
    """  # noqa: D301  (click's mark for a paragraph that it must not wrap)

    def connect(endpoint: Endpoint) -> Provider:
        from stepgraph_client.providers.openai_dialect import Dialect, dialect_of  # noqa: PLC0415
        from stepgraph_client.providers.openai_models import (  # noqa: PLC0415  # needs the extra
            OpenAIModels,
        )

        known = dialect_of(endpoint.base_url)
        dialect = Dialect(
            max_tokens_field=max_tokens_field or known.max_tokens_field,
            sends_thinking=send_thinking,
            asks_for_usage=not no_stream_usage,
        )
        return OpenAIModels.at(endpoint, dialect=dialect)

    host_until_told(settings, hosting, connect)
