"""The file of settings: TOML, whose table `server` is ours.

    [server]
    listen = "127.0.0.1:7233"

    [server.limits]
    max_graph_bytes = "4MiB"

Rules: it gives texts by the names of settings, as flags would; what they mean is for `config`. What is in it and is no setting is an error: a
misspelt key would otherwise be a setting that does nothing. The environment comes as an argument.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stepgraph_server.core.errors import StepgraphError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

FILE_VARIABLE: Final = "STEPGRAPH_CONFIG"
SECTION: Final = "server"
SECTIONS: Final = (SECTION, "client")
"""The command line reads its own part of the same file, and says itself what is wrong there."""

MAX_FILE_BYTES: Final = 256 * 1024
"""A file of settings is written by hand; what is larger is some other file."""


class SettingsFileError(StepgraphError):
    """A file of settings that can't be used. Expected; the message names the file, the key, and what was probably meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFile:
    """What a file says, by the name of the setting. `path` is where it is, or would be; None if there is no such place."""

    path: Path | None
    texts: Mapping[str, str] = field(default_factory=dict)


def read_file(named: str, environment: Mapping[str, str], names: Collection[str]) -> SettingsFile:
    """Read the file: the one that is `named`, else that of the environment, else the one in the usual place, which may be missing.

    Args:
        named: A path; empty if nobody named one.
        environment: Of the process.
        names: All settings, such as `listen` and `limits.max_graph_bytes`.

    Raises:
        SettingsFileError: It was named and can't be read; it is no TOML; or it has what is no setting.
    """
    given = named or environment.get(FILE_VARIABLE, "")
    path = Path(given).expanduser() if given else usual_place(environment)
    if path is None:
        return SettingsFile(path=None)
    try:
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        if not given and isinstance(error, (FileNotFoundError, NotADirectoryError)):
            return SettingsFile(path=path)
        message = f"the settings file {path} can't be read: {error.strerror or error}"
        raise SettingsFileError(message) from error
    return SettingsFile(path=path, texts=dict(_texts(path, _document(path, content), names)))


def usual_place(environment: Mapping[str, str]) -> Path | None:
    """Return where the file is looked for if nobody names one: ~/.config/stepgraph/config.toml, or below XDG_CONFIG_HOME.

    None where the environment has neither that nor a HOME, as that of a service may be.
    """
    base, home = environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME", "")
    folder = Path(base)
    if not folder.is_absolute():
        if not home:
            return None
        folder = Path(home) / ".config"
    return folder / "stepgraph" / "config.toml"


def meant(name: str, names: Collection[str]) -> str:
    """Return the setting that was probably meant by a name, as a piece of a sentence; empty if none is near."""
    near = difflib.get_close_matches(name, names, 1)
    # A group is easily forgotten, or another one named.
    near = near or [each for each in names if each.rpartition(".")[2] == name.rpartition(".")[2]]
    return f"; did you mean {near[0]}?" if near else ""


def _document(path: Path, content: bytes) -> Mapping[str, object]:
    if len(content) > MAX_FILE_BYTES:
        message = f"{path} is too large for a file of settings: it has more than 256 KiB"
        raise SettingsFileError(message)
    try:
        return tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path} is not TOML: {error}"
        raise SettingsFileError(message) from error


def _texts(
    path: Path, document: Mapping[str, object], names: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield our settings by their names, as the texts that flags would have."""
    for key in document:
        if key not in SECTIONS:
            message = f"{path}: there is no table [{key}]{meant(key, SECTIONS)}; there are [server] and [client]"
            raise SettingsFileError(message)
    ours = document.get(SECTION, {})
    if not isinstance(ours, dict):
        message = f"{path}: {SECTION} must be a table: write [{SECTION}] on a line of its own"
        raise SettingsFileError(message)
    groups = {name.partition(".")[0] for name in names if "." in name}
    for key, value in ours.items():
        if key in groups and isinstance(value, dict):
            for member, inner in value.items():
                yield _text(path, f"{key}.{member}", inner, names)
        else:
            yield _text(path, key, value, names)


def _text(path: Path, name: str, value: object, names: Collection[str]) -> tuple[str, str]:
    if name not in names:
        message = (
            f"{path}: there is no setting {SECTION}.{name}{meant(name, names)}; "
            "`stepgraph serve --settings` lists all"
        )
        raise SettingsFileError(message)
    if not isinstance(value, (str, int, float)):
        message = f"{path}: {SECTION}.{name}: expected a text, a number, or true or false"
        raise SettingsFileError(message)
    # TOML's own words for what is on or off are ours as well.
    return name, str(value).lower() if isinstance(value, bool) else str(value)
