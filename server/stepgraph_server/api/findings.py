"""What is wrong with a request, collected: a caller hears everything at once.

Rules: whoever finds something says where and what was expected, and goes on. One request ends in one refusal; where what was
found differs in kind, the kind that the caller must look at first gives the reason, and all of it is listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core.errors import Refused, Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_FINDINGS: Final = 100
"""So many are collected; a request that is wrong in more places is not read to its end."""

#: First comes what makes everything else doubtful, last what another server might take.
_ORDER: Final = (
    "UNKNOWN_VARIANT",
    "INVALID_REQUEST",
    "JSON_INVALID",
    "PAYLOAD_TOO_LARGE",
    "LIMIT_EXCEEDED",
    "NOT_YET_SUPPORTED",
)


class Findings:
    """Collects violations."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Violation, Mapping[str, str]]] = {}

    @property
    def is_full(self) -> bool:
        """Whether to stop looking."""
        return len(self._found) >= MAX_FINDINGS

    def add(
        self,
        path: str,
        message: str,
        *,
        reason: str = "INVALID_REQUEST",
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Report a field. `metadata` are the keys that the reason has beside `field`."""
        self.report(Violation(path=path, message=message, reason=reason), metadata or {})

    def report(self, violation: Violation, metadata: Mapping[str, str]) -> None:
        """Report what somebody else found, unless enough was found, or that field already."""
        if not self.is_full:
            self._found.setdefault(violation.path, (violation, metadata))

    def too_large(self, path: str, size_bytes: int, limit_bytes: int, remedy: str = "") -> None:
        """Report something that is larger than it may be."""
        self.add(
            path,
            f"has {size_bytes:,} bytes, of at most {limit_bytes:,}. {remedy}".rstrip(),
            reason="PAYLOAD_TOO_LARGE",
            metadata={"limit_bytes": str(limit_bytes), "size_bytes": str(size_bytes)},
        )

    def too_many(self, path: str, actual: int, limit: int, limit_name: str) -> None:
        """Report a number that is over a limit."""
        self.add(
            path,
            f"has {actual:,} entries, of at most {limit:,}",
            reason="LIMIT_EXCEEDED",
            metadata={"limit_name": limit_name, "limit": str(limit), "actual": str(actual)},
        )

    def not_yet(self, path: str) -> None:
        """Report something that this server does not do yet."""
        self.add(path, "is not supported yet by this server", reason="NOT_YET_SUPPORTED")

    def refuse_if_any(self) -> None:
        """Raise a refusal of all that was found.

        Raises:
            Refused: Something was found.
        """
        if not self._found:
            return
        first, metadata = min(self._found.values(), key=lambda found: _ORDER.index(found[0].reason))
        count = len(self._found)
        more = f" (and {count - 1} more)" if count > 1 else ""
        raise Refused(
            first.reason,
            f"{first.path}: {first.message}{more}",
            metadata={"field": first.path, **metadata},
            violations=[violation for violation, _ in self._found.values()],
        )
