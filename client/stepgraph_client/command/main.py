"""The entry of the command line `stepgraph`.

Rules: commands of other packages come by the entry-point group `stepgraph.commands` (the server brings `serve` that way),
and one that can't be loaded, because its package's extras are not installed, says so only when it is asked for.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points

import click

from stepgraph_client.command.answering import answer_command
from stepgraph_client.command.calling import CommandError, ExitCode
from stepgraph_client.command.completing import completion_command
from stepgraph_client.command.config import config_command
from stepgraph_client.command.doctor import doctor_command
from stepgraph_client.command.executor import executor_group
from stepgraph_client.command.executors import executors_group
from stepgraph_client.command.graphs import graphs_group
from stepgraph_client.command.health import health_command
from stepgraph_client.command.interrupts import interrupts_group
from stepgraph_client.command.run import run_command
from stepgraph_client.command.runs import runs_group
from stepgraph_client.command.tree import VerbGroup, settle, shared_options
from stepgraph_client.command.values import values_group

PLUGINS = "stepgraph.commands"


class CommandGroup(VerbGroup):
    """Our own commands, and those of other packages, which are loaded when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted({*super().list_commands(ctx), *entry_points(group=PLUGINS).names})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; for one that can't be loaded, one that says why."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        for entry in entry_points(group=PLUGINS, name=cmd_name):
            return _loaded(entry)
        return None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what was typed; everything that is sent is UTF-8, so what is not is refused before anything begins."""
        for text in args:
            if not _is_utf8(text):
                message = f"{os.fsencode(text)!r} is not UTF-8"
                raise click.UsageError(message, ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; an option of all commands that a command of another package does not know is told where it goes."""
        try:
            result: object = super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            # At a question that is asked here, say; click would end with 1, which would mean a run that failed.
            click.echo("\nStopped.", err=True)
            raise SystemExit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever reads has enough, as `head` does. Python must not try again at its end; and 1 would mean a run that failed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(ExitCode.READER_GONE) from None
        except click.NoSuchOption as error:
            if error.option_name not in {name for each in shared_options() for name in each.opts}:
                raise
            command = ctx.invoked_subcommand or "COMMAND"
            message = f"{error.option_name} goes before the command: stepgraph {error.option_name} … {command} …"
            raise click.UsageError(message, error.ctx) from error
        return result


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="stepgraph", message="stepgraph %(version)s")
@click.pass_context
def stepgraph(context: click.Context) -> None:
    """Run agent graphs, watch them, and answer their questions.

    \b
    Exit codes:
      0  it is done; a watched run is COMPLETED
      1  a watched run FAILED
      2  typed wrongly, a setting is wrong, or a file is no graph
      3  refused by the server
      4  the server can't be reached, or did not answer in time
      5  a watched run was CANCELLED
      6  the time for watching (--for) is over
      130  Ctrl-C; runs go on. 141  nobody reads the output any more
    """  # noqa: D301  (click's mark for a paragraph that it must not wrap)
    context.obj = settle(context)


stepgraph.params[:0] = shared_options()

for _command in (
    run_command,
    runs_group,
    graphs_group,
    interrupts_group,
    answer_command,
    executors_group,
    executor_group,
    values_group,
    health_command,
    doctor_command,
    config_command,
    completion_command,
):
    stepgraph.add_command(_command)


def main() -> None:
    """Run the command line; it ends the process."""
    stepgraph(prog_name="stepgraph")


def _is_utf8(text: str) -> bool:
    """Whether the bytes that were typed are; Python has those that are not as surrogates."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _loaded(entry: EntryPoint) -> click.Command:
    """Return a plugin's command."""
    try:
        command = entry.load()
    except ImportError as error:
        return _missing(entry, error)
    assert isinstance(command, click.Command), f"{entry.value} is no click command"
    return command


def _missing(entry: EntryPoint, error: ImportError) -> click.Command:
    reason = (
        f"`stepgraph {entry.name}` needs what is not installed here ({error}); "
        "install it with `pip install 'stepgraph[server]'`"
    )

    @click.command(
        entry.name,
        help="Needs packages that are not installed.",
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("_rest", nargs=-1)
    def missing(_rest: tuple[str, ...]) -> None:
        raise CommandError(reason)

    return missing
