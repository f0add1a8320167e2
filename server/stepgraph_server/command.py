"""The command `serve`: from flags to a server that runs until it is told to stop.

Rules: an operator reads one clear line for whatever goes wrong, and a supervisor an exit code; see `EXIT_CODES`. The first
SIGTERM or SIGINT stops the server in order, the second one at once.
"""

from __future__ import annotations

import asyncio
import difflib
import gc
import logging
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

import click

from stepgraph_server import app
from stepgraph_server.api.listening import AddressRefused, parse_address
from stepgraph_server.config import PREFIX, SettingError, load, otel_variables
from stepgraph_server.settings_file import SettingsFileError
from stepgraph_server.storage.errors import StoreInUse, StoreUnusable
from stepgraph_server.storage.sqlite.mounts import EPHEMERAL, REMOTE, file_system
from stepgraph_server.telemetry import logs, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from stepgraph_server.config import LoadedSettings, Settings

_log = logging.getLogger(__name__)

#: A frame of an executor makes thousands of objects that are all gone when it has been handled, and what a run keeps has no
#: cycles. By default (700, 10, 10) the collector looked at what is being worked on hundreds of times a second and found nothing.
#: With these, 5 to 6 % less CPU per node execution in benchmarks.react at 64 runs.
GC_THRESHOLDS: Final = (50_000, 20, 50)

CLIENT_VARIABLES: Final = frozenset(
    {"STEPGRAPH_SERVER", "STEPGRAPH_NAMESPACE", "STEPGRAPH_TIMEOUT", "STEPGRAPH_COLOR"}
)
"""They begin as settings do, and are for the command line."""

EXIT_STOPPED: Final = 0
EXIT_FAULT: Final = 1
EXIT_SETTING: Final = 2
EXIT_ADDRESS: Final = 3
EXIT_DATA: Final = 4
EXIT_DATA_IN_USE: Final = 5
EXIT_SIGNALLED: Final = 128

EXIT_CODES: Final = """\b
Exit codes:
  0  it was told to stop, and did
  1  a fault of the server's; see its log
  2  a flag or a setting is wrong
  3  the address is not allowed, or in use
  4  the data file can't be used
  5  another server uses the data file
  128 + n  signal n came a second time, and it stopped at once
"""


@click.command("serve", epilog=EXIT_CODES)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where to listen. Only loopback, unless --insecure is given.  [default: 127.0.0.1:7233]",
)
@click.option(
    "--data",
    metavar="FILE",
    help="The SQLite file that holds everything durable; made, with its folder, if missing."
    "  [default: stepgraph.db]",
)
@click.option("--memory", is_flag=True, help="Keep everything in memory instead of a file.")
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond loopback, although there is no TLS and no authentication yet.",
)
@click.option(
    "--log-level", metavar="LEVEL", help="debug, info, warning or error.  [default: info]"
)
@click.option("--log-format", metavar="FORMAT", help="human or json.  [default: human]")
@click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    help="Where metrics may be scraped, such as 127.0.0.1:9464.  [default: nowhere]",
)
@click.option(
    "--set",
    "assignments",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other setting, such as session.ping_interval=5s. May be given several times.",
)
@click.option(
    "--config",
    metavar="FILE",
    help="A TOML file with settings, in its table [server].  [default: STEPGRAPH_CONFIG, else "
    "~/.config/stepgraph/config.toml if it is there]",
)
@click.option("--settings", "show", is_flag=True, help="Show all settings, and don't start.")
def serve(  # noqa: PLR0913  # click passes each flag by name
    *,
    listen: str | None,
    data: str | None,
    memory: bool,
    insecure: bool,
    log_level: str | None,
    log_format: str | None,
    metrics_address: str | None,
    assignments: Sequence[str],
    config: str | None,
    show: bool,
) -> NoReturn:
    """Run the server until it gets SIGTERM or SIGINT.

    Each setting may also stand in the environment: `session.ping_interval` as STEPGRAPH_SESSION_PING_INTERVAL; or in a
    file: as `ping_interval = "5s"` below [server.session]. A flag counts before a variable, and that before the file.
    """
    if memory and data is not None:
        _fail(EXIT_SETTING, "--memory and --data exclude each other")
    flags = _assigned(assignments)
    given = {
        "listen": listen,
        "data": data,
        "log_level": log_level,
        "log_format": log_format,
        "metrics_address": metrics_address,
    }
    flags |= {name: text for name, text in given.items() if text is not None}
    flags |= {name: "true" for name, is_on in (("memory", memory), ("insecure", insecure)) if is_on}
    try:
        loaded = load(flags, file=config or _config_of_all_commands())
    except (SettingError, SettingsFileError) as error:
        _fail(EXIT_SETTING, str(error))
    if show:
        for line in describe(loaded):
            click.echo(line)
        raise SystemExit(EXIT_STOPPED)
    logs.configure(loaded.settings.log_level, loaded.settings.log_format)
    _warn_of_unknown(loaded)
    raise SystemExit(_run(loaded.settings))


def _config_of_all_commands() -> str:
    """Return what stands before the command: `stepgraph --config FILE serve`. Empty if nothing does."""
    # Kept by the command line for all commands; it is not known here what else that is.
    flags = click.get_current_context().meta.get("stepgraph_client.flags", {})
    return str(flags.get("config", ""))


def describe(loaded: LoadedSettings) -> list[str]:
    """Return all settings as lines of a table."""
    rows = loaded.describe()
    width = max(len(row.name) for row in rows)
    values = max(len(row.value) for row in rows)
    return [
        f"{row.name:<{width}}  {row.value:<{values}}  {row.meaning}"
        + ("" if row.source == "default" else f" (from {row.source})")
        for row in rows
    ]


def _warn_of_unknown(loaded: LoadedSettings) -> None:
    """Name variables that change nothing; not refused, because an environment is shared with other programs."""
    # What all of them begin with would make them alike.
    known = {row.variable.removeprefix(PREFIX): row.variable for row in loaded.describe()}
    for variable in loaded.unknown:
        if variable not in CLIENT_VARIABLES:
            closest = difflib.get_close_matches(variable.removeprefix(PREFIX), known, 1)
            _log.warning(
                "This variable is no setting and changes nothing",
                extra={
                    "action": names.SETTING_UNKNOWN,
                    "variable": variable,
                    "closest": known[closest[0]] if closest else "none; see serve --settings",
                },
            )


def _assigned(assignments: Sequence[str]) -> dict[str, str]:
    flags: dict[str, str] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            _fail(EXIT_SETTING, f"--set {assignment}: expected NAME=VALUE")
        flags[name.strip()] = text.strip()
    return flags


def _run(settings: Settings) -> int:
    try:
        asyncio.run(_serve(settings))
    except SettingError as error:
        _fail(EXIT_SETTING, str(error))
    except AddressRefused as error:
        _fail(EXIT_ADDRESS, str(error))
    except StoreInUse as error:
        _fail(EXIT_DATA_IN_USE, str(error))
    except StoreUnusable as error:
        _fail(EXIT_DATA, str(error))
    except Exception:  # noqa: BLE001  # whatever it is, it goes to the log whole
        _log.exception(
            "The server ends because of a fault of its own", extra={"action": names.SERVER_FAILED}
        )
        return EXIT_FAULT
    return EXIT_STOPPED


async def _serve(settings: Settings) -> None:
    told = asyncio.Event()
    with _signals(told):
        async with app.running_server(settings, variables=otel_variables()) as server:
            _spare_collections()
            _announce(server)
            await told.wait()
            _log.info("Stopping", extra={"action": names.SERVER_STOPPING})
            started = time.perf_counter()
        _log.info(
            "Stopped",
            extra={
                "action": names.SERVER_STOPPED,
                "seconds": round(time.perf_counter() - started, 1),
            },
        )


def _spare_collections() -> None:
    """Let the collector leave alone what was built to stay, and look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _announce(server: app.RunningServer) -> None:
    settings = server.settings
    address = parse_address(server.address)
    if not address.is_loopback:
        _log.warning(
            "Whoever reaches this address can read and change everything: there is no TLS and no authentication",
            extra={"action": names.SERVER_INSECURE, "address": server.address},
        )
    if settings.memory:
        _log.warning(
            "Everything is kept in memory and is gone when the server stops",
            extra={"action": names.DATA_EPHEMERAL},
        )
    elif settings.data is not None:
        _warn_of_place(settings.data)
    data = "memory" if settings.memory else str(settings.data)
    fields = {
        "address": server.address,
        "data": data,
        "version": app.version(),
        "pid": os.getpid(),
    }
    if settings.log_format == "json":
        _log.info("Ready", extra={"action": names.SERVER_READY, **fields})
    else:
        click.echo(
            f"stepgraph {app.version()} is ready on {server.address}, data in {data}, process {os.getpid()}"
        )


def _warn_of_place(data: Path) -> None:
    """Say what an operator should know of where the data is, before it is lost."""
    kind = file_system(data)
    fields = {"data": str(data), "file_system": kind}
    if kind in EPHEMERAL:
        _log.warning(
            "The data file is on a file system that is not kept: mount a volume for it",
            extra={"action": names.DATA_EPHEMERAL, **fields},
        )
    elif kind in REMOTE:
        _log.warning(
            "The data file is on a file system of the network, where SQLite can lose it: use a local disk",
            extra={"action": names.DATA_REMOTE, **fields},
        )


@contextmanager
def _signals(told: asyncio.Event) -> Iterator[None]:
    """Let the first signal stop the server in order, and the second one at once."""
    loop = asyncio.get_running_loop()

    def on_signal(number: int) -> None:
        if told.is_set():
            # Nothing is lost that was acknowledged: the journal is made for this.
            os._exit(EXIT_SIGNALLED + number)
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _fail(code: int, message: str) -> NoReturn:
    click.echo(f"stepgraph serve: {message}", err=True)
    raise SystemExit(code)
