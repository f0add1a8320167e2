"""`stepgraph completion`, and the ids and names that a shell completes.

Rules: whoever presses Tab waits. So the server is asked once, with one try, for a short time; and whatever goes wrong gives no
completions and says nothing, because a message would land in the middle of the line that is being typed.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem, get_completion_class

from stepgraph_client.calls import Patience
from stepgraph_client.client import Client
from stepgraph_client.command.tree import Verb, settle
from stepgraph_client.errors import StepgraphError
from stepgraph_client.requests import status_name
from stepgraph_client.wording import capability_text, graph_text, names_text, question_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    Items: TypeAlias = AsyncIterator[tuple[str, str]]
    Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

SHELLS = ("bash", "zsh", "fish")
PATIENCE_S = 0.7
#: More than this is no choice.
MAX_ITEMS = 50

_WHERE = {
    "bash": '# eval "$(stepgraph completion bash)"    in ~/.bashrc',
    "zsh": '# eval "$(stepgraph completion zsh)"    in ~/.zshrc, after compinit',
    "fish": "# stepgraph completion fish | source    in ~/.config/fish/config.fish",
}


@click.command("completion", cls=Verb)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print a completion script.

    It makes SHELL complete commands, options, runs, graphs and questions.

    \b
    bash: eval "$(stepgraph completion bash)"    in ~/.bashrc
    zsh:  eval "$(stepgraph completion zsh)"     in ~/.zshrc, after compinit
    fish: stepgraph completion fish | source     in ~/.config/fish/config.fish
    """  # noqa: D301  (click's mark for a paragraph that it must not wrap)
    found = get_completion_class(shell)
    assert found is not None, "click knows all three"
    script = found(context.find_root().command, {}, "stepgraph", "_STEPGRAPH_COMPLETE")
    click.echo(_WHERE[shell])
    # Not `source()`: it starts the shell to look at its version, and talks about what it finds.
    click.echo(script.source_template % script.source_vars())


def _completer(items: Callable[[Client], Items]) -> Completer:
    """Return what completes by asking the server."""

    async def ask(context: click.Context, incomplete: str) -> list[CompletionItem]:
        settings = settle(context)
        patience = Patience(max_tries=1, timeout_s=PATIENCE_S)
        found: list[CompletionItem] = []
        async with (
            Client(settings.server, namespace=settings.namespace, patience=patience) as client,
            asyncio.timeout(PATIENCE_S),
        ):
            async for value, help_text in items(client):
                if value.startswith(incomplete):
                    found.append(CompletionItem(value, help=help_text))
                if len(found) == MAX_ITEMS:
                    break
        return found

    def complete(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        # Everything that can be expected: no server, no such namespace, settings that can't be read, a bad file.
        with contextlib.suppress(StepgraphError, TimeoutError, click.ClickException, OSError):
            return asyncio.run(ask(context, incomplete))
        return []

    return complete


async def _runs(client: Client) -> Items:
    async for run in client.list_runs():
        yield run.run_id, f"{graph_text(run.graph)}, {status_name(run.status)}"


async def _graphs(client: Client) -> Items:
    async for version in client.list_graphs():
        yield version.name, graph_text(version)


async def _interrupts(client: Client) -> Items:
    async for question in client.interrupts():
        yield question.interrupt_id, f"{question.run_id}: {question_text(question)}"[:60]


async def _executors(client: Client) -> Items:
    async for each in client.executors():
        yield each.executor_id, names_text(map(capability_text, each.capabilities), 3)


complete_run = _completer(_runs)
complete_graph = _completer(_graphs)
complete_interrupt = _completer(_interrupts)
complete_executor = _completer(_executors)
