"""What the OTEL_* variables say that is not left to OpenTelemetry's own exporters.

Rules: nothing is sent anywhere unless an endpoint is named. A variable that can't be used is said and ignored, as OpenTelemetry
asks for: telemetry never keeps a server from starting. Headers, certificates, compression and timeouts of OTLP are read by the
exporters themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from stepgraph_server.telemetry import sampling
from stepgraph_server.telemetry.sampling import DEFAULT_SAMPLER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepgraph_server.telemetry.sampling import Sampler

T = TypeVar("T")

PREFIX: Final = "OTEL_"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A variable that can't be used, and what was expected."""

    variable: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OtelSettings:
    """What to record and where to send it.

    Attributes:
        traces: Spans are sent, over OTLP.
        metrics: Metrics are sent, over OTLP.
        sampler: Which runs are recorded.
        span_delay_s: The longest that a span waits to be sent together with others.
        metric_interval_s: How often metrics are sent.
        ignored: Variables that can't be used.
    """

    traces: bool = False
    metrics: bool = False
    sampler: Sampler = DEFAULT_SAMPLER
    span_delay_s: float = 1.0
    metric_interval_s: float = 60.0
    ignored: tuple[Ignored, ...] = ()


def read(variables: Mapping[str, str]) -> OtelSettings:
    """Return what the variables say."""
    if variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return OtelSettings()
    reader = _Reader(variables)
    default = OtelSettings()
    return OtelSettings(
        traces=reader.sends("traces"),
        metrics=reader.sends("metrics"),
        sampler=reader.sampler(default.sampler),
        span_delay_s=reader.milliseconds("OTEL_BSP_SCHEDULE_DELAY", default.span_delay_s),
        metric_interval_s=reader.milliseconds(
            "OTEL_METRIC_EXPORT_INTERVAL", default.metric_interval_s
        ),
        ignored=tuple(reader.ignored),
    )


class _Reader:
    def __init__(self, variables: Mapping[str, str]) -> None:
        # OpenTelemetry: an empty variable counts as one that is not set.
        self._variables = {name: text.strip() for name, text in variables.items() if text.strip()}
        self.ignored: list[Ignored] = []

    def sends(self, signal: str) -> bool:
        """Whether there is somewhere to send a signal to."""
        own = _ENDPOINT.replace("OTLP_", f"OTLP_{signal.upper()}_")
        if own not in self._variables and _ENDPOINT not in self._variables:
            return False
        exporter = f"OTEL_{signal.upper()}_EXPORTER"
        exporters = self._variables.get(exporter, "otlp").split(",")
        if exporters == ["none"]:
            return False
        if exporters != ["otlp"]:
            self._ignore(exporter, "expected otlp or none")
        protocol = _PROTOCOL.replace("OTLP_", f"OTLP_{signal.upper()}_")
        for variable in (protocol, _PROTOCOL):
            if self._variables.get(variable, "grpc") != "grpc":
                # Sending gRPC to a port for HTTP would fail for ever, with nothing that says why.
                self._ignore(variable, "expected grpc, so nothing is sent")
                return False
        return True

    def sampler(self, default: Sampler) -> Sampler:
        name = self._variables.get("OTEL_TRACES_SAMPLER")
        argument = self._variables.get("OTEL_TRACES_SAMPLER_ARG", "")
        if name is None:
            return default
        if name not in sampling.NAMES:
            return self._parsed("OTEL_TRACES_SAMPLER", lambda: sampling.named(name, ""), default)
        whole = sampling.named(name, "")
        return self._parsed(
            "OTEL_TRACES_SAMPLER_ARG", lambda: sampling.named(name, argument), whole
        )

    def milliseconds(self, variable: str, default_s: float) -> float:
        """Return a time in seconds."""
        text = self._variables.get(variable)
        if text is None:
            return default_s
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            self._ignore(variable, "expected milliseconds, a whole number from 1")
            return default_s
        return int(text) / 1_000

    def _parsed(self, variable: str, parse: Callable[[], T], default: T) -> T:
        try:
            return parse()
        except ValueError as error:
            self._ignore(variable, str(error))
            return default

    def _ignore(self, variable: str, expected: str) -> None:
        ignored = Ignored(variable=variable, expected=expected)
        if ignored not in self.ignored:
            self.ignored.append(ignored)
