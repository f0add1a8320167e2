"""The port of graphs: definitions by digest, and versions of names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stepgraph_server.core.instants import Instant
    from stepgraph_server.storage.records import GraphVersionRecord

DIGEST_PREFIX = "sha256:"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphReference:
    """Which graph: by digest, or by name and version; version 0 means the latest.

    Exactly one of `name` and `digest` is set.
    """

    name: str = ""
    version: int = 0
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> GraphReference:
        """Return the reference that `name`, `name@3` or `sha256:…` stands for.

        Raises:
            ValueError: What follows the last @ is not a version from 1.
        """
        if text.startswith(DIGEST_PREFIX):
            return cls(digest=text)
        name, at, version = text.rpartition("@")
        if not at:
            return cls(name=text)
        # isdecimal alone would let digits of other scripts and leading zeros in.
        if not (version.isascii() and version.isdecimal()) or version.startswith("0"):
            message = f"{version!r} is not a version: a whole number from 1"
            raise ValueError(message)
        return cls(name=name, version=int(version))


class Graphs(Protocol):
    """Graphs of all namespaces. They are never changed nor, yet, deleted."""

    async def put(
        self, namespace: str, name: str, digest: str, definition: bytes, create_time: Instant
    ) -> tuple[GraphVersionRecord, bool]:
        """Store a graph under a name, and return its version and whether it is new.

        If any version of the name has this digest, that version is returned and nothing is stored; otherwise the
        next version is made, from 1. With an empty name the graph can be found by its digest only, and its version
        is 0. It is durable when this returns.

        Raises:
            JournalUnavailable: Nothing could be written.
        """
        ...

    async def get(self, namespace: str, reference: GraphReference) -> GraphVersionRecord | None:
        """Return a graph with its definition, or None.

        By digest: the oldest named version that has it, or else the one without a name.
        """
        ...

    async def list_names(
        self, namespace: str, after_name: str, limit: int
    ) -> list[GraphVersionRecord]:
        """Return the latest version of each name after `after_name`, by name, without definitions."""
        ...

    async def list_versions(
        self, namespace: str, name: str, before_version: int | None, limit: int
    ) -> list[GraphVersionRecord]:
        """Return the versions of a name below `before_version` (None: all), newest first, without definitions."""
        ...
