"""Executors as the rules see them, played by a test: who is there, what they can do, how much room they have."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepgraph.v1 import llm_pb2
from stepgraph_server.core.canonical import digest
from stepgraph_server.core.inputs import Placement, RunLimits, ToolOffer

if TYPE_CHECKING:
    from stepgraph_server.core.inputs import Selector
    from stepgraph_server.core.state import Task

ENDLESS = 1_000_000


@dataclass(slots=True, kw_only=True)
class PlayedExecutor:
    """An executor. `abilities` are keys such as `llm:claude` or `tool:search`, or a kind such as `llm`; none means all."""

    id: str
    instance: str
    room: int = ENDLESS
    abilities: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()

    def can(self, task: Task) -> bool:
        """Whether it could take the task if it had room."""
        if not self.labels >= set(task.selector):
            return False
        kind, name = task.key[0], task.key[1]
        return not self.abilities or bool(self.abilities & {kind, f"{kind}:{name}"})


@dataclass(slots=True)
class PlayedWorld:
    """A world without chance. Executors are asked in the order of their ids."""

    limits: RunLimits = field(default_factory=RunLimits)
    executors: dict[str, PlayedExecutor] = field(default_factory=dict)
    offers: tuple[ToolOffer, ...] = ()
    #: Tools of which an executor says that a person must approve each call.
    approvals: frozenset[str] = frozenset()
    jitter_value: float = 0.0

    def place(self, task: Task) -> Placement | None:
        """Reserve room at the first executor that can take the task and has some, the preferred one before all."""
        wanted = task.prefers
        for executor in sorted(
            self.executors.values(), key=lambda each: (each.instance != wanted, each.id)
        ):
            if executor.room > 0 and executor.can(task):
                executor.room -= 1
                return Placement(executor_id=executor.id, instance=executor.instance)
        return None

    def capable(self, task: Task) -> int:
        """Count the executors that could take the task."""
        return sum(executor.can(task) for executor in self.executors.values())

    def tools(self, _: Selector) -> tuple[ToolOffer, ...]:
        """Return the tools that were declared."""
        return self.offers

    def requires_approval(self, task: Task) -> bool:
        """Whether the tool of a task was declared so."""
        return task.key[1] in self.approvals

    def jitter(self) -> float:
        """Return no chance at all."""
        return self.jitter_value

    # What tests do

    def join(self, executor: PlayedExecutor) -> None:
        """Let an executor connect, or connect again."""
        self.executors[executor.id] = executor

    def free(self, instance: str) -> None:
        """Give back the room of an attempt that is over."""
        for executor in self.executors.values():
            if executor.instance == instance:
                executor.room += 1

    def offer(self, name: str, schema: str, *, requires_approval: bool = False) -> None:
        """Declare a tool."""
        definition = llm_pb2.ToolDefinition(name=name, input_schema=schema)
        offers = [each for each in self.offers if each.definition.name != name]
        offers.append(
            ToolOffer(
                definition=definition,
                digest=digest(definition),
                requires_approval=requires_approval,
            )
        )
        approvals = self.approvals - {name}
        self.approvals = approvals | {name} if requires_approval else approvals
        self.offers = tuple(sorted(offers, key=lambda each: each.definition.name))

    def apart(self) -> PlayedWorld:
        """Return a world that looks the same and can be used up apart from this one."""
        twin = copy.copy(self)
        twin.executors = {name: copy.copy(each) for name, each in self.executors.items()}
        return twin


__all__ = ["ENDLESS", "PlayedExecutor", "PlayedWorld"]
