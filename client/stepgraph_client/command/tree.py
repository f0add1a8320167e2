"""How commands hang together: options that all of them take, and groups that do something when no verb is given.

Rules: an option of all commands may stand before a command or behind it; behind it wins, being the last word. Whatever is wrong with
settings ends the command as if it was typed wrongly, and says where it stands.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import click

from stepgraph_client.command.calling import Settings
from stepgraph_client.command.parameters import seconds, server_address
from stepgraph_client.command.settings import (
    SETTINGS,
    Color,
    SettingsError,
    find,
    read_environment,
    read_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stepgraph_client.command.settings import File, Found

_FLAGS = "stepgraph_client.flags"
NO_COLOR = "no_color"
CONFIG = "config"


def shared_options() -> Iterator[click.Option]:
    """Yield the options that all commands take."""
    for setting in SETTINGS:
        yield click.Option(
            [setting.flag],
            metavar=setting.metavar,
            help=f"{setting.meaning}  [{setting.variable}; default: {setting.default or 'none'}]",
            expose_value=False,
            callback=_note,
        )
    yield click.Option(
        ["--no-color", NO_COLOR],
        is_flag=True,
        help="The same as --color never.",
        expose_value=False,
        callback=_note,
    )
    yield click.Option(
        ["--config", CONFIG],
        metavar="FILE",
        help="A TOML file with settings.  [STEPGRAPH_CONFIG; default: ~/.config/stepgraph/config.toml]",
        expose_value=False,
        callback=_note,
    )


def _note(context: click.Context, parameter: click.Parameter, value: object) -> object:
    """Remember a flag that was given, whichever command it belongs to."""
    if value and parameter.name is not None:
        context.meta.setdefault(_FLAGS, {})[parameter.name] = value
    return value


def given_flags(context: click.Context) -> Mapping[str, str]:
    """Return the flags of settings that were typed so far, by setting."""
    flags: dict[str, str] = dict(context.meta.get(_FLAGS, {}))
    flags.pop(CONFIG, None)
    if flags.pop(NO_COLOR, None):
        flags["color"] = Color.NEVER.value
    return flags


def find_settings(context: click.Context) -> tuple[Mapping[str, Found], File]:
    """Return each setting with where it came from, and the file.

    Raises:
        UsageError: the file is none, or has what is no setting.
    """
    environment = read_environment()
    try:
        file = read_file(context.meta.get(_FLAGS, {}).get(CONFIG, ""), environment)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    found = dict(find(given_flags(context), environment, file))
    return found, file


def settle(context: click.Context) -> Settings:
    """Return the settings of a command.

    Raises:
        UsageError: a setting can't be read; the message says where it came from.
    """
    found, _ = find_settings(context)
    timeout = _read(found["timeout"], seconds) if found["timeout"].text else None
    return Settings(
        server=_read(found["server"], server_address),
        namespace=found["namespace"].text,
        timeout_s=timeout,
        color=_read(found["color"], _color),
        flags=_typed(context),
    )


def _typed(context: click.Context) -> tuple[str, ...]:
    """Return the flags that say which server and namespace, as they were typed."""
    given = context.meta.get(_FLAGS, {})
    return tuple(
        word
        for name in (CONFIG, "server", "namespace")
        if name in given
        for word in (f"--{name}", given[name])
    )


def _color(text: str) -> Color:
    try:
        return Color(text)
    except ValueError:
        message = f"{text!r} is not auto, always or never"
        raise click.BadParameter(message) from None


def _read(found: Found, reader: Callable[[str], Any]) -> Any:  # noqa: ANN401  (what the reader gives)
    try:
        return reader(found.text)
    except click.BadParameter as error:
        message = f"{found.setting.name} (from {found.source}): {error.message}"
        raise click.UsageError(message) from error


class Verb(click.Command):
    """A command that takes the options of all commands as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  (as click has them)
        super().__init__(*args, **kwargs)
        own = {name for option in self.params for name in option.opts}
        # `health --timeout` is a question of its own.
        self._shared = [each for each in shared_options() if not own.intersection(each.opts)]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters: its own first, so that help can tell them from the others."""
        own = super().get_params(ctx)
        return [*own[:-1], *self._shared, *own[-1:]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its own options; the others are where they belong to."""
        own = [
            each
            for each in self.get_params(ctx)
            if isinstance(each, click.Option) and each not in self._shared
        ]
        records = [record for each in own if (record := each.get_help_record(ctx)) is not None]
        if records:
            with formatter.section("Options"):
                formatter.write_dl(records)
        names = ", ".join(each.opts[0] for each in self._shared)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"Also takes {names}; see stepgraph --help.")

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  (as click has it)
        """Do it, with the settings as the last word has them."""
        if isinstance(ctx.obj, Settings):
            ctx.obj = settle(ctx)
        return super().invoke(ctx)


class VerbGroup(click.Group):
    """A group of verbs. With `default` it does that one if none is named: `interrupts --run r` lists."""

    command_class = Verb

    def __init__(self, *args: Any, default: str = "", **kwargs: Any) -> None:  # noqa: ANN401
        kwargs.setdefault("no_args_is_help", not default)
        super().__init__(*args, **kwargs)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default verb where one is missing."""
        help_names = set(self.get_help_option_names(ctx))
        is_verbless = not args or (args[0].startswith("-") and not help_names.intersection(args))
        if self._default and is_verbless and not ctx.resilient_parsing:
            args = [self._default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; one that is misspelt is told which was meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            message = f"there is no command {name!r}{meant}"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)


VerbGroup.group_class = VerbGroup
