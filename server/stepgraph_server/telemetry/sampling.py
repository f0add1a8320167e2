"""Which runs are recorded: decided once for a run, from nothing but its trace.

Rules: the decision is a function of the caller's flag and the trace id, as OpenTelemetry's own samplers are. So it is the same
after a restart and at every server, all of a run is recorded or nothing, and what is not recorded costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_RATIO: Final = 0.05
"""One run in 20, of those whose callers have no trace. Enough to see how runs go; little enough not to be noticed."""

_LOW_BITS: Final = 64
_SAMPLERS: Final = {
    "always_on": (1.0, False),
    "always_off": (0.0, False),
    "traceidratio": (None, False),
    "parentbased_always_on": (1.0, True),
    "parentbased_always_off": (0.0, True),
    "parentbased_traceidratio": (None, True),
}
NAMES: Final = tuple(_SAMPLERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """Decides by ratio of trace ids; a caller's decision goes before, if it is to be followed.

    Attributes:
        ratio: Of the traces that begin here, from 0 to 1.
        follows_parent: Whether a caller's decision counts.
    """

    ratio: float = DEFAULT_RATIO
    follows_parent: bool = True

    def decides(self, trace_id: str, *, parent_sampled: bool | None) -> bool:
        """Whether to record. `parent_sampled` is what the caller decided; None if there is none."""
        if self.follows_parent and parent_sampled is not None:
            return parent_sampled
        # As TraceIdRatioBased does it, so that others with the same ratio decide alike.
        return int(trace_id[-_LOW_BITS // 4 :], 16) < round(self.ratio * (1 << _LOW_BITS))


DEFAULT_SAMPLER: Final = Sampler()


def named(name: str, argument: str) -> Sampler:
    """Return the sampler that OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG name.

    Raises:
        ValueError: With what was expected.
    """
    if name not in _SAMPLERS:
        message = f"expected one of {', '.join(NAMES)}"
        raise ValueError(message)
    ratio, follows_parent = _SAMPLERS[name]
    if ratio is None:
        ratio = _ratio(argument) if argument else 1.0
    return Sampler(ratio=ratio, follows_parent=follows_parent)


def _ratio(text: str) -> float:
    expected = "expected a number from 0 to 1"
    try:
        ratio = float(text)
    except ValueError:
        raise ValueError(expected) from None
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(expected)
    return ratio
