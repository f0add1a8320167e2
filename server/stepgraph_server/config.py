"""Settings: every limit with its unit and its reason.

Rules: this is the only module that reads the environment. A setting is a field of a frozen dataclass here, with its default,
its kind (which says how text is read and shown) and its meaning; its name, its variable and its row in `describe` follow from
that. Nothing else in the server has a default of its own that an operator might want to change.

A setting `limits.max_graph_bytes` comes from `--set limits.max_graph_bytes=4MiB`, else from STEPGRAPH_LIMITS_MAX_GRAPH_BYTES,
else from the file of settings (`settings_file`), else from its default.
"""

from __future__ import annotations

import dataclasses
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, cast, get_args, get_type_hints

from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.core.instants import HOUR, MILLISECOND, MINUTE, SECOND, Span, seconds_text
from stepgraph_server.settings_file import FILE_VARIABLE, meant, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PREFIX: Final = "STEPGRAPH_"
KIB: Final = 1024
MIB: Final = 1024 * KIB


class SettingError(StepgraphError):
    """A setting that can't be used. Expected; the fault of whoever configures the server.

    Attributes:
        name: The setting, or settings that contradict each other.
        source: Where the text came from; empty if several settings are to blame.
        message: What was expected instead.
    """

    def __init__(self, *, name: str, source: str, message: str) -> None:
        super().__init__(f"{name}{f' (from {source})' if source else ''}: {message}")
        self.name = name
        self.source = source
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How a setting is read from text and shown. `parse` raises ValueError with what was expected."""

    parse: Callable[[str], object]
    show: Callable[[object], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One setting, for people."""

    name: str
    variable: str
    value: str
    source: str
    meaning: str


# ---- kinds -----------------------------------------------------------------------------------


_SIZES: Final = {"": 1, "b": 1, "kib": KIB, "mib": MIB, "gib": 1024 * MIB}
_TIMES: Final = {"ms": MILLISECOND, "s": SECOND, "m": MINUTE, "min": MINUTE, "h": HOUR}
_MEASURE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")


def _measure(text: str, units: Mapping[str, int], expected: str) -> int:
    match = _MEASURE.fullmatch(text.strip())
    if match is None or match.group(2).lower() not in units:
        raise ValueError(expected)
    return round(float(match.group(1)) * units[match.group(2).lower()])


def _size(text: str) -> int:
    expected = "expected a size such as 262144, 256KiB or 2MiB"
    size = _measure(text, _SIZES, expected)
    if size < 1:
        raise ValueError(expected)
    return size


def _show_size(value: object) -> str:
    size = cast("int", value)  # a kind only shows what it has parsed
    for unit, count in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= count and size % count == 0:
            return f"{size // count} {unit}"
    return f"{size} B"


def _span(text: str) -> Span:
    expected = "expected a time such as 250ms, 5s, 10m or 24h"
    return Span(_measure(text, {**_TIMES, **({"": 0} if text.strip() == "0" else {})}, expected))


def _show_span(value: object) -> str:
    span = cast("Span", value)
    return seconds_text(span) if span else "0 (none)"


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9][0-9_]*", text.strip()) is None or int(text) < 1:
        message = "expected a whole number from 1"
        raise ValueError(message)
    return int(text)


def _ratio(text: str) -> float:
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text.strip()) is None:
        message = "expected a number such as 0.2"
        raise ValueError(message)
    return float(text)


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in {"1", "true", "yes", "on", "0", "false", "no", "off"}:
        message = "expected true or false"
        raise ValueError(message)
    return word in {"1", "true", "yes", "on"}


def _path(text: str) -> Path | None:
    return Path(text).expanduser() if text else None


def _choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        word = text.strip().lower()
        if word not in words:
            message = f"expected one of {', '.join(words)}"
            raise ValueError(message)
        return word

    return Kind(parse=parse, show=str)


TEXT: Final = Kind(parse=str.strip, show=lambda value: str(value) or "none")
PATH: Final = Kind(parse=_path, show=lambda value: str(value or "none"))
FLAG: Final = Kind(parse=_flag, show=lambda value: "true" if value else "false")
COUNT: Final = Kind(parse=_count, show=lambda value: f"{value:,}")
RATIO: Final = Kind(parse=_ratio, show=lambda value: f"{value:g}")
SIZE: Final = Kind(parse=_size, show=_show_size)
SPAN: Final = Kind(parse=_span, show=_show_span)
LOG_LEVEL: Final = _choice("debug", "info", "warning", "error")
LOG_FORMAT: Final = _choice("human", "json")


# ---- the settings ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """How much of something there may be, and what is refused beyond it."""

    max_inline_value_bytes: Annotated[
        int,
        SIZE,
        "The largest value inside a message. Larger ones are stored once and referred to, so that events stay small.",
    ] = 256 * KIB
    max_stored_value_bytes: Annotated[
        int, SIZE, "The largest stored value. It is held in memory while it is written."
    ] = 64 * MIB
    max_run_bytes: Annotated[
        int,
        SIZE,
        "The largest journal of one run; beyond it the run fails. Loading a run reads all of it.",
    ] = 256 * MIB
    max_run_events: Annotated[
        int, COUNT, "The most events of one run; beyond it the run fails."
    ] = 200_000
    max_fan_out: Annotated[
        int,
        COUNT,
        "The most effects or pieces of spawned work that a step program may ask for in one turn, and items of a Map.",
    ] = 10_000
    max_labels: Annotated[
        int, COUNT, "The most labels of a run or an executor; each is an entry of an index."
    ] = 64
    max_graph_bytes: Annotated[int, SIZE, "The largest definition of a graph."] = 2 * MIB
    max_iterations: Annotated[
        int, COUNT, "The most supersteps of a run whose graph names no number: a loop must end."
    ] = 50
    max_request_bytes: Annotated[
        int,
        SIZE,
        "The largest message that the transport takes. It is well above all other limits, so that what is "
        "too large is refused with a reason, and a stream survives it.",
    ] = 8 * MIB
    max_pending_changes: Annotated[
        int,
        COUNT,
        "The most calls that change something at one time; more are refused as OVERLOADED. Each one waits in memory.",
    ] = 10_000
    max_watchers: Annotated[
        int, COUNT, "The most watches at one time; more are refused as OVERLOADED."
    ] = 10_000
    max_sessions: Annotated[
        int, COUNT, "The most sessions of executors at one time; more are refused as OVERLOADED."
    ] = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """How much one page or one response holds."""

    default_entries: Annotated[int, COUNT, "The entries of a page if the request names none."] = 50
    max_entries: Annotated[int, COUNT, "The most entries of a page."] = 500
    default_state_entries: Annotated[
        int, COUNT, "The messages and variables of a page of a state if the request names none."
    ] = 200
    max_state_entries: Annotated[
        int, COUNT, "The most messages and variables of a page of a state."
    ] = 1_000
    max_response_bytes: Annotated[
        int,
        SIZE,
        "Where a page is cut. With one more entry a response stays below 3 MiB, which clients with "
        "their default limit of 4 MiB can take.",
    ] = 2 * MIB
    max_chunk_bytes: Annotated[int, SIZE, "The largest piece of a stored value or an input."] = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How an executor's session is kept."""

    ping_interval: Annotated[
        Span, SPAN, "How often the server pings when it has nothing else to say."
    ] = Span(5 * SECOND)
    silence_limit: Annotated[
        Span,
        SPAN,
        "After how much silence a session ends: three pings, so that one lost packet does not end it.",
    ] = Span(15 * SECOND)
    lost_grace: Annotated[
        Span,
        SPAN,
        "How long the attempts of a lost session are kept for the same process to come back.",
    ] = Span(30 * SECOND)
    cancel_grace: Annotated[
        Span, SPAN, "How long a cancelled attempt may take to report what it has."
    ] = Span(10 * SECOND)
    max_frame_bytes: Annotated[
        int, SIZE, "The largest frame that an executor may send. Larger ones are rejected."
    ] = 4 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """How long each part of a task's life may take if neither graph nor node says so. 0 means no limit."""

    queue: Annotated[Span, SPAN, "Until an executor has it: a missing executor must show."] = Span(
        10 * MINUTE
    )
    accept: Annotated[
        Span, SPAN, "Until the executor accepts the attempt; then it is withdrawn."
    ] = Span(10 * SECOND)
    run: Annotated[Span, SPAN, "One attempt."] = Span(10 * MINUTE)
    idle: Annotated[Span, SPAN, "Between two signs of progress of a streaming attempt."] = Span(
        60 * SECOND
    )
    total: Annotated[Span, SPAN, "The whole task, with all tries and delays."] = Span(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """How often a task is tried if neither graph nor node says so."""

    max_tries: Annotated[int, COUNT, "Tries in all, the first included."] = 3
    first_delay: Annotated[Span, SPAN, "The delay before the second try."] = SECOND
    factor: Annotated[float, RATIO, "What each further delay is multiplied by."] = 2.0
    max_delay: Annotated[Span, SPAN, "The longest delay."] = Span(30 * SECOND)
    jitter: Annotated[
        float, RATIO, "How much of a delay is random, so that tasks that failed together part."
    ] = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long things are kept that nobody asked to delete."""

    request_ids: Annotated[
        Span, SPAN, "How long a repeated request_id finds the first response."
    ] = Span(24 * HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownSettings:
    """How the server stops."""

    drain_grace: Annotated[
        Span, SPAN, "How long sessions may take to hand over what they have."
    ] = Span(5 * SECOND)
    stop_grace: Annotated[Span, SPAN, "How long calls that are under way may take after that."] = (
        Span(5 * SECOND)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that an operator can change."""

    listen: Annotated[
        str,
        TEXT,
        "Where the server listens, host:port. Another host than loopback needs `insecure`.",
    ] = "127.0.0.1:7233"
    insecure: Annotated[
        bool, FLAG, "Listen beyond loopback in plain text and without authentication."
    ] = False
    data: Annotated[
        Path | None,
        PATH,
        "The SQLite file that holds everything durable. It is created, with its folder.",
    ] = Path("stepgraph.db")
    memory: Annotated[
        bool, FLAG, "Keep everything in memory; it is gone when the server stops."
    ] = False
    watch_keepalive: Annotated[
        Span, SPAN, "How often a quiet watch sends an empty response; proxies cut what is silent."
    ] = Span(20 * SECOND)
    log_level: Annotated[str, LOG_LEVEL, "The least important events that are logged."] = "info"
    log_format: Annotated[
        str, LOG_FORMAT, "How events are logged: lines for people, or a JSON object a line."
    ] = "human"
    metrics_address: Annotated[
        str,
        TEXT,
        "Where Prometheus may scrape metrics over HTTP, host:port, such as 127.0.0.1:9464; empty is nowhere. "
        "Another host than loopback needs `insecure`.",
    ] = ""
    limits: LimitSettings = LimitSettings()
    pages: PageSettings = PageSettings()
    session: SessionSettings = SessionSettings()
    tasks: TaskSettings = TaskSettings()
    retry: RetrySettings = RetrySettings()
    retention: RetentionSettings = RetentionSettings()
    shutdown: ShutdownSettings = ShutdownSettings()

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        for wrong, names, message in self._contradictions():
            if wrong:
                raise SettingError(name=names, source="", message=message)

    def _contradictions(self) -> Iterator[tuple[bool, str, str]]:
        yield (
            self.session.silence_limit < 2 * self.session.ping_interval,
            "session.silence_limit, session.ping_interval",
            "the silence limit must be at least two ping intervals, or a quiet session ends",
        )
        yield (self.session.ping_interval < SECOND, "session.ping_interval", "must be at least 1 s")
        yield (self.watch_keepalive < SECOND, "watch_keepalive", "must be at least 1 s")
        yield (
            self.limits.max_inline_value_bytes > self.pages.max_chunk_bytes,
            "limits.max_inline_value_bytes, pages.max_chunk_bytes",
            "an inline value must fit into a chunk of a response",
        )
        yield (
            self.limits.max_graph_bytes >= self.limits.max_request_bytes
            or self.session.max_frame_bytes >= self.limits.max_request_bytes,
            "limits.max_request_bytes",
            "the transport must take more than any graph or frame, so that what is too large is refused with a reason",
        )
        yield (
            self.pages.max_response_bytes + self.limits.max_inline_value_bytes > 3 * MIB,
            "pages.max_response_bytes, limits.max_inline_value_bytes",
            "a page with one more value must stay below 3 MiB, or clients with default limits can't read it",
        )
        yield (self.data is None and not self.memory, "data", "a file is needed, or `memory`")
        yield (self.retry.factor < 1, "retry.factor", "must be at least 1")
        yield (self.retry.jitter > 1, "retry.jitter", "must be at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSettings:
    """Settings, and where each one that is not a default came from."""

    settings: Settings
    sources: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()  # variables that look like settings and are none

    def describe(self) -> list[Row]:
        """Return every setting with its value, source and meaning, in the order of this file."""
        return [
            Row(
                name=about.name,
                variable=about.variable,
                value=about.kind.show(about.value_in(self.settings)),
                source=self.sources.get(about.name, "default"),
                meaning=about.meaning,
            )
            for about in _abouts()
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _About:
    """One setting: its group ("" for the outermost), its field, and what the field says of itself."""

    group: str
    field_name: str
    kind: Kind
    meaning: str

    @property
    def name(self) -> str:
        return f"{self.group}.{self.field_name}" if self.group else self.field_name

    @property
    def variable(self) -> str:
        return PREFIX + self.name.replace(".", "_").upper()

    def value_in(self, settings: Settings) -> object:
        owner: object = getattr(settings, self.group) if self.group else settings
        value: object = getattr(owner, self.field_name)
        return value


def _abouts() -> Iterator[_About]:
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            for inner, member in get_type_hints(hint, include_extras=True).items():
                yield _about(name, inner, member)
        else:
            yield _about("", name, hint)


def _about(group: str, name: str, hint: object) -> _About:
    _, kind, meaning = get_args(hint)  # Annotated[type, kind, meaning]
    return _About(group=group, field_name=name, kind=kind, meaning=meaning)


def load(
    flags: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    *,
    file: str = "",
) -> LoadedSettings:
    """Put the settings together: flags before the environment before the file before defaults.

    Args:
        flags: Texts by the name of the setting, such as `session.ping_interval`.
        environment: In place of the environment of the process.
        file: The file of settings, if one was named. Else STEPGRAPH_CONFIG names it, else it is looked for in the usual place,
            where it may be missing.

    Raises:
        SettingError: A name is unknown, a text can't be read, or settings contradict each other.
        SettingsFileError: The file of settings can't be used.
    """
    given = dict(flags or {})
    variables = os.environ if environment is None else environment
    names = [about.name for about in _abouts()]
    found = read_file(file, variables, names)
    groups: dict[str, dict[str, object]] = {"": {}}
    sources: dict[str, str] = {}
    for about in _abouts():
        if about.name in given:
            text, source = given.pop(about.name), f"the flag for {about.name}"
        elif about.variable in variables:
            text, source = variables[about.variable], about.variable
        elif about.name in found.texts:
            text, source = found.texts[about.name], str(found.path)
        else:
            continue
        try:
            groups.setdefault(about.group, {})[about.field_name] = about.kind.parse(text)
        except ValueError as error:
            raise SettingError(
                name=about.name, source=source, message=f"{error}, not {text[:80]!r}"
            ) from None
        sources[about.name] = source
    if given:
        unknown = min(given)
        message = f"there is no such setting{meant(unknown, names)}; `stepgraph serve --settings` lists all"
        raise SettingError(name=unknown, source="a flag", message=message)
    known = {about.variable for about in _abouts()} | {FILE_VARIABLE}
    others = sorted(name for name in set(variables) - known if name.startswith(PREFIX))
    return LoadedSettings(settings=_build(groups), sources=sources, unknown=tuple(others))


def _build(groups: dict[str, dict[str, object]]) -> Settings:
    changes = groups.pop("")
    for name, members in groups.items():
        changes[name] = dataclasses.replace(getattr(Settings(), name), **members)
    # The kinds have parsed each text to the type of its field, which no checker can see.
    return dataclasses.replace(Settings(), **changes)  # type: ignore[arg-type]


def otel_variables() -> dict[str, str]:
    """Return what the environment says to OpenTelemetry; `telemetry.otel_settings` reads it."""
    return {name: text for name, text in os.environ.items() if name.startswith("OTEL_")}
