"""The tools on offer: what a model may be shown.

Rules: a view of the registry, made again when something has changed and the same object until then. Definitions were
checked when they were declared. Which of them a node lets through is the core's matter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stepgraph_server.core.inputs import ToolOffer
    from stepgraph_server.executors.registry import Registry, Selector

#: Offers that are remembered, over all namespaces; selectors come from runs, so their number has no bound of its own.
MAX_REMEMBERED: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    version: int
    offers: tuple[ToolOffer, ...]
    #: Name and digest of tools that need approval; also name and "", for what may go to any digest.
    approvals: frozenset[tuple[str, str]]


class Catalogue:
    """What the executors of a registry offer."""

    def __init__(self, registry: Registry) -> None:
        self._registry: Final = registry
        self._made: Final[dict[tuple[str, Selector], _Made]] = {}

    def tools(self, namespace: str, selector: Selector) -> tuple[ToolOffer, ...]:
        """Return the tools of executors whose labels satisfy the selector, sorted by name; one offer per name.

        Of several definitions of one name the one that came last is offered: during a rolling deployment models see the
        new one, while calls that were decided with the old one still go to executors that have it.
        """
        made = self._made.get((namespace, selector))
        version = self._registry.version(namespace)
        if made is not None and made.version == version:
            return made.offers
        new = self._make(namespace, selector, version)
        if made is not None and made.offers == new.offers:
            # Whoever compares by identity has nothing to do.
            new = replace(new, offers=made.offers)
        if len(self._made) >= MAX_REMEMBERED:
            self._made.clear()
        self._made[namespace, selector] = new
        return new.offers

    def approvals(self, namespace: str, selector: Selector) -> frozenset[tuple[str, str]]:
        """Return the tools whose calls a person must approve, by name and digest, and by name with "" for any digest.

        One executor that says so is enough: which of those that offer a definition gets a call, nobody can say beforehand.
        """
        self.tools(namespace, selector)
        return self._made[namespace, selector].approvals

    def _make(self, namespace: str, selector: Selector, version: int) -> _Made:
        newest: dict[str, tuple[int, ToolOffer]] = {}
        approvals: set[tuple[str, str]] = set()
        for seat, tools_since in self._registry.offering(namespace, selector):
            for name, offer in seat.abilities.tools.items():
                since = tools_since[name, offer.digest]
                known = newest.get(name)
                if known is None or known[0] < since:
                    newest[name] = (since, offer)
                if offer.requires_approval:
                    approvals |= {(name, offer.digest), (name, "")}
        offers = tuple(_with_approval(newest[name][1], approvals) for name in sorted(newest))
        return _Made(version=version, offers=offers, approvals=frozenset(approvals))


def _with_approval(offer: ToolOffer, approvals: set[tuple[str, str]]) -> ToolOffer:
    requires = (offer.definition.name, offer.digest) in approvals
    return offer if requires == offer.requires_approval else replace(offer, requires_approval=True)
