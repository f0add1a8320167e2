"""What commands print: tables and facts for people, JSON, YAML or ids for programs.

Rules: what programs read has the schema's names, is one document (or one a line), and has neither colour nor frames nor an end that is cut
off; so has a table that is piped. On a terminal a table fits its width: what may be shortened is, and where even that is too wide, each row
becomes a block of its own. An id is never cut or broken, since it is there to be copied.
"""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import dataclass, field
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import click
from google.protobuf.json_format import MessageToDict
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from stepgraph_client.command.calling import Settings
from stepgraph_client.command.settings import Color
from stepgraph_client.event_printer import visible
from stepgraph_client.folding import folded
from stepgraph_client.yaml_text import yaml_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from google.protobuf.message import Message

    F = TypeVar("F", bound=Callable[..., object])
    M = TypeVar("M", bound=Message)

Plain: TypeAlias = "str | int | float | bool | list[Plain] | dict[str, Plain]"

_GAP = "  "
#: A column that may be shortened keeps at least this much; below it nothing can be told from it.
_LEAST = 10


class Form(StrEnum):
    """In which form a command prints."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    IDS = "ids"


#: What a list can be printed as, one thing, and what is watched.
LIST_FORMS = tuple(Form)
ITEM_FORMS = (Form.TABLE, Form.JSON, Form.YAML, Form.IDS)
PLAIN_FORMS = (Form.TABLE, Form.JSON, Form.YAML)
STREAM_FORMS = (Form.TABLE, Form.JSONL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table. `is_flexible`: it may be shortened; `style` is how rich colours it, and `styles` certain cells."""

    name: str
    is_flexible: bool = False
    style: str = ""
    styles: Mapping[str, str] = field(default_factory=dict)


def output_option(*forms: Form) -> Callable[[F], F]:
    """Give a command `--output` and `--json`, and with them the argument `out`."""
    is_stream = Form.JSONL in forms and Form.JSON not in forms
    json_help = "JSON, one document a line." if is_stream else "Print JSON."

    def decorate(function: F) -> F:
        @click.option(
            "--output",
            "-o",
            type=click.Choice([form.value for form in forms]),
            help=f"How to print.  [default: {forms[0]}]",
        )
        @click.option("--json", "as_json", is_flag=True, help=json_help)
        @wraps(function)
        def with_output(
            *args: object, output: str | None, as_json: bool, **kwargs: object
        ) -> object:
            context = click.get_current_context()
            wanted = Form.JSONL if is_stream else Form.JSON
            if as_json and output not in {None, wanted.value}:
                message = f"--json and --output {output} exclude each other"
                raise click.UsageError(message, context)
            form = wanted if as_json else Form(output or forms[0])
            return function(*args, out=Output(form, settings=context.obj), **kwargs)

        return with_output  # type: ignore[return-value]  # the same function, for click

    return decorate


class Output:
    """Where a command prints, in the form that was asked for."""

    def __init__(self, form: Form = Form.TABLE, *, settings: Settings | None = None) -> None:
        self.form = form
        self._color = settings.color if isinstance(settings, Settings) else Color.AUTO

    @property
    def is_for_people(self) -> bool:
        """Whether people read it."""
        return self.form is Form.TABLE

    @property
    def console(self) -> Console:
        """The console of what is printed now."""
        return console(self._color)

    def document(self, content: Message | Plain, *, ids: str = "") -> bool:
        """Print one thing, if programs read it; return whether that was so."""
        match self.form:
            case Form.TABLE:
                return False
            case Form.IDS:
                click.echo(ids)
            case _:
                self._structured(as_plain(content))
        return True

    def documents(
        self, contents: Iterable[M] | Iterable[dict[str, Plain]], *, ids: Callable[[M], str]
    ) -> bool:
        """Print a list of things, if programs read it; return whether that was so."""
        match self.form:
            case Form.TABLE:
                return False
            case Form.IDS:
                for each in contents:
                    click.echo(ids(each))  # type: ignore[arg-type]  # lists of messages have ids
            case Form.JSONL:
                for each in contents:
                    print_json_line(as_plain(each))
            case _:
                self._structured([as_plain(each) for each in contents])
        return True

    def _structured(self, content: Plain) -> None:
        if self.form is Form.YAML:
            click.echo(as_yaml(content), nl=False)
        elif self.form is Form.JSONL:
            print_json_line(content)
        else:
            print_json(content)

    def table(
        self, columns: Sequence[Column], rows: Iterable[Sequence[str]], *, empty: str
    ) -> None:
        """Print rows in columns under a header, or what to say if there are none."""
        print_table(columns, rows, empty=empty, to=self.console)

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """Print names with their values, one a line; what is empty is left out."""
        print_facts(facts, to=self.console)

    def text(self, text: str, style: str = "") -> None:
        """Print lines; a terminal shows those that are too long as `folded` has them."""
        print_lines(text, to=self.console, style=style)

    def fitted(self, text: str, style: str = "") -> None:
        """Print a text as one line; on a terminal its end is left out where it does not fit."""
        to = self.console
        line = Text(visible(text), style=style)
        if to.is_terminal:
            line.truncate(to.width, overflow="ellipsis")
        to.print(line)

    def prose(self, text: str, style: str = "", *, indent: str = "") -> None:
        """Print a text behind a heading; on a terminal it goes on below where it began."""
        for line in _beside(indent, visible(text), self.console):
            self.console.print(Text(line, style=style))


class _Console(Console):
    """A console that leaves it to the command what a reader who has gone away means."""

    def on_broken_pipe(self) -> None:
        # rich would end the process with 1, which would mean a run that failed.
        raise BrokenPipeError


def console(color: Color = Color.AUTO, *, is_error: bool = False) -> Console:
    """Return a console on stdout, or stderr, as they are now. Nothing is wrapped, highlighted or read as markup."""
    return _Console(
        file=sys.stderr if is_error else sys.stdout,
        highlight=False,
        soft_wrap=True,
        emoji=False,
        markup=False,
        no_color=True if color is Color.NEVER else None,
        force_terminal=True if color is Color.ALWAYS else None,
    )


def print_lines(text: str, *, to: Console, style: str = "") -> None:
    """Print lines; a terminal shows those that are too long as `folded` has them."""
    for line in visible(text).split("\n"):
        for part in folded(line, to.width) if to.is_terminal else [line]:
            to.print(Text(part, style=style))


def _beside(heading: str, text: str, to: Console) -> list[str]:
    """Return a heading with lines beside it, which are wrapped on a terminal. Words stay whole, ids among them."""
    room = max(to.width - cell_len(heading), _LEAST)
    lines: list[str] = []
    for line in text.split("\n"):
        is_long = to.is_terminal and cell_len(line) > room
        wrapped = textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False)
        lines += wrapped if is_long else [line]
    return [
        f"{' ' * cell_len(heading) if at else heading}{line}".rstrip()
        for at, line in enumerate(lines)
    ]


def plain(message: Message) -> dict[str, Plain]:
    """Return a message as the schema's JSON form, in its own names."""
    entries: dict[str, Plain] = MessageToDict(message, preserving_proto_field_name=True)
    return entries


def as_plain(content: Message | Plain) -> Plain:
    """Return what is printed as texts, numbers, lists and mappings."""
    return content if isinstance(content, (str, int, float, list, dict)) else plain(content)


def as_yaml(content: Plain) -> str:
    """Return a YAML document."""
    if isinstance(content, dict):
        return yaml_text(content)
    if not isinstance(content, list) or not content:
        return f"{json.dumps(content, ensure_ascii=False)}\n"
    # A list stands at the outermost level as it would behind a key.
    return yaml_text({"list": content}).partition("\n")[2].replace("\n  ", "\n")[2:]


def print_json(content: object) -> None:
    """Print one JSON document over several lines."""
    click.echo(json.dumps(content, indent=2, ensure_ascii=False))


def print_json_line(content: object) -> None:
    """Print one JSON document on one line. It goes out at once: whoever reads a watch waits for it."""
    click.echo(json.dumps(content, ensure_ascii=False))


def print_table(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, empty: str, to: Console
) -> None:
    """Print rows in columns under a header, or what to say if there are none."""
    cells = [[visible(cell).replace("\n", " ") for cell in row] for row in rows]
    if not cells:
        click.echo(empty, err=True)
        return
    natural = [
        max(cell_len(line[at]) for line in [[column.name for column in columns], *cells])
        for at, column in enumerate(columns)
    ]
    widths = natural if not to.is_terminal else fitted(columns, natural, to.width)
    if widths is None:
        _print_blocks(columns, cells, to)
        return
    _print_row(columns, [column.name for column in columns], widths, to, is_header=True)
    for row in cells:
        _print_row(columns, row, widths, to)


def fitted(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int] | None:
    """Return the widths of columns that fit a terminal; None if they can't. The widest flexible column gives way first."""
    widths = list(natural)
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
    while excess > 0:
        flexible = [
            at for at, column in enumerate(columns) if column.is_flexible and widths[at] > _LEAST
        ]
        if not flexible:
            return None
        widest = max(flexible, key=lambda at: widths[at])
        widths[widest] -= 1
        excess -= 1
    return widths


def _print_row(
    columns: Sequence[Column],
    row: Sequence[str],
    widths: Sequence[int],
    to: Console,
    *,
    is_header: bool = False,
) -> None:
    line = Text()
    for at, (column, cell, width) in enumerate(zip(columns, row, widths, strict=True)):
        text = cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
        last = at == len(columns) - 1
        padding = "" if last else " " * (width - cell_len(text)) + _GAP
        style = column.styles.get(cell, column.style)
        line.append(text, style="bold" if is_header else style)
        line.append(padding)
    line.rstrip()
    to.print(line)


def _print_blocks(columns: Sequence[Column], cells: Sequence[Sequence[str]], to: Console) -> None:
    """Print each row as a block: its id, then what else there is of it."""
    for row in cells:
        first, *rest = row
        to.print(Text(first, style="bold"))
        facts = [
            (column.name.lower(), cell) for column, cell in zip(columns[1:], rest, strict=True)
        ]
        print_facts(facts, to=to, indent="  ")


def print_facts(facts: Iterable[tuple[str, str]], *, to: Console, indent: str = "") -> None:
    """Print names with their values, one a line; what is empty is left out."""
    shown = [(name, value) for name, value in facts if value]
    width = max((cell_len(name) for name, _ in shown), default=0)
    for name, value in shown:
        padding = " " * (width - cell_len(name)) + _GAP
        first, *rest = _beside(f"{indent}{name}{padding}", visible(value), to)
        line = Text(first)
        line.stylize("cyan", len(indent), len(indent) + len(name))
        to.print(line)
        for each in rest:
            to.print(Text(each))
