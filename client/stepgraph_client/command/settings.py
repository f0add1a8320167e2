"""Settings of the command line: from flags, else the environment, else a file, else a default.

Rules: this is the only module of the client that reads the environment, and only for the command line: a program that uses `Client` says
what it wants. A setting is one line of `SETTINGS`; its flag, its variable, its key in the file and its row in `stepgraph config` follow
from that. What is in the file and is no setting is an error, since a misspelt key would otherwise be a setting that does nothing.

The file is TOML, `[client]` for the command line and `[server]` for `stepgraph serve`:

    [client]
    server = "10.0.0.7:7233"
    timeout = "30s"
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from stepgraph_client.connection import DEFAULT_SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE_VARIABLE = "STEPGRAPH_CONFIG"
SECTION = "client"
#: The server reads its own part of the same file, and says itself what is wrong there.
SECTIONS = (SECTION, "server")
HIDDEN = "(set, not shown)"
#: A file of settings is read by people; what is larger is some other file.
MAX_FILE_BYTES = 256 * 1024


class SettingsError(ValueError):
    """Settings that can't be used. Expected; the message says where they came from and what to do."""


class Color(StrEnum):
    """When output is coloured and live."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting. `default` is text, as a flag would have it; `is_secret` keeps its value from being shown."""

    name: str
    default: str
    metavar: str
    meaning: str
    is_secret: bool = False

    @property
    def variable(self) -> str:
        """The variable of the environment."""
        return f"STEPGRAPH_{self.name.upper()}"

    @property
    def flag(self) -> str:
        """The option of the command line."""
        return f"--{self.name.replace('_', '-')}"


SETTINGS = (
    Setting(
        name="server",
        default=DEFAULT_SERVER,
        metavar="HOST:PORT",
        meaning="The server.",
    ),
    Setting(
        name="namespace",
        default="default",
        metavar="NAME",
        meaning="The namespace.",
    ),
    Setting(
        name="timeout",
        default="",
        metavar="DURATION",
        meaning="How long a command may take to be answered, its retries included, such as 30s. "
        "Watching takes as long as it takes.",
    ),
    Setting(
        name="color",
        default=Color.AUTO.value,
        metavar="WHEN",
        meaning="auto, always or never: colour, and live views that redraw themselves.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A setting with the text that counts, and where that came from."""

    setting: Setting
    text: str
    source: str

    @property
    def shown(self) -> str:
        """The text for people."""
        if self.setting.is_secret and self.text:
            return HIDDEN
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of settings. `path` is where it is, or would be; None if there is no such place."""

    path: Path | None
    exists: bool
    texts: Mapping[str, str]


def read_environment() -> Mapping[str, str]:
    """Return the environment of the process."""
    return os.environ  # noqa: TID251  (the one place where the command line reads it)


def find(
    flags: Mapping[str, str], environment: Mapping[str, str], file: File
) -> Mapping[str, Found]:
    """Return each setting as it counts, by name."""
    found: dict[str, Found] = {}
    for setting in SETTINGS:
        if setting.name in flags:
            text, source = flags[setting.name], f"the flag {setting.flag}"
        elif environment.get(setting.variable):
            text, source = environment[setting.variable], setting.variable
        elif setting.name in file.texts:
            text, source = file.texts[setting.name], str(file.path)
        else:
            text, source = setting.default, "default"
        found[setting.name] = Found(setting=setting, text=text, source=source)
    return found


def read_file(named: str, environment: Mapping[str, str]) -> File:
    """Read the file of settings: the one that is `named`, else that of the environment, else the one in the usual place.

    Raises:
        SettingsError: it was named and is not there; it is no TOML; it has what is no setting.
    """
    given = named or environment.get(FILE_VARIABLE, "")
    path = Path(given).expanduser() if given else usual_place(environment)
    if path is None:
        return File(path=None, exists=False, texts={})
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        if not given and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return File(path=path, exists=False, texts={})
        message = f"the settings file {path} can't be read: {error.strerror or error}"
        raise SettingsError(message) from error
    if len(content) > MAX_FILE_BYTES:
        message = f"{path} is too large for a file of settings: it has more than 256 KiB"
        raise SettingsError(message)
    return File(path=path, exists=True, texts=_texts(path, content))


def usual_place(environment: Mapping[str, str]) -> Path | None:
    """Return where the file is looked for if nobody says: ~/.config/stepgraph/config.toml, or below XDG_CONFIG_HOME.

    None where the environment has neither that nor a HOME.
    """
    base, home = environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME", "")
    folder = Path(base)
    if not folder.is_absolute():
        if not home:
            return None
        folder = Path(home) / ".config"
    return folder / "stepgraph" / "config.toml"


def _texts(path: Path, content: bytes) -> Mapping[str, str]:
    """Return the texts of our section, by the name of the setting."""
    try:
        document = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path} is not TOML: {error}"
        raise SettingsError(message) from error
    for key in document:
        if key not in SECTIONS:
            raise SettingsError(_unknown(path, key, [f"[{each}]" for each in SECTIONS]))
    ours = document.get(SECTION, {})
    if not isinstance(ours, dict):
        message = f"{path}: {SECTION} must be a table: write [{SECTION}] on a line of its own"
        raise SettingsError(message)
    names = [setting.name for setting in SETTINGS]
    for key, value in ours.items():
        if key not in names:
            raise SettingsError(_unknown(path, f"{SECTION}.{key}", names))
        if not isinstance(value, str):
            message = f'{path}: {SECTION}.{key} must be a text: write it in quotes, {key} = "…"'
            raise SettingsError(message)
    return ours


def _unknown(path: Path, key: str, names: Iterable[str]) -> str:
    known = list(names)
    near = difflib.get_close_matches(
        key.rpartition(".")[2], [each.strip("[]") for each in known], 1
    )
    meant = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
    return f"{path}: there is no setting {key}{meant}"
