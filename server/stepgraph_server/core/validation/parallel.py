"""Warnings about branches that run side by side.

Rules: only forks are looked at whose branches surely start together: unconditional edges of one node, or edges with equal
conditions. Guessing about others would warn of every if-else. How much is looked at is bounded, and what lies beyond is
left without a warning: a warning is a help, not a promise.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import graph_pb2
from stepgraph_server.core.topology import reversed_graph
from stepgraph_server.core.validation.codes import WarningCode
from stepgraph_server.core.validation.flow import condition_key
from stepgraph_server.core.validation.report import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report

MAX_BRANCHES: Final = 128
"""Of all forks of a graph together; each costs a walk over the graph."""

_WAITING: Final = frozenset({"human_approval", "sleep", "wait_signal"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fork:
    """Branches that start together.

    Attributes:
        node: Where they start.
        starts: The first node of each branch.
        branches: For each branch, how many edges after its first node each of its nodes is reached.
        shared: In how many branches each node is.
    """

    node: int
    starts: Sequence[int]
    branches: Sequence[Mapping[int, int]]
    shared: Mapping[int, int]

    def own(self, branch: int) -> Iterator[int]:
        """Return the nodes that only this branch runs, and its first one, which runs beside all other first ones."""
        for node in self.branches[branch]:
            if self.shared[node] == 1 or node == self.starts[branch]:
                yield node


def check_parallel(report: Report, outline: Outline) -> None:
    """Warn of branches that meet unevenly, of model calls side by side, and of nodes that hold up others."""
    predecessors = reversed_graph(outline.successors)
    warned: set[int] = set()
    for fork in _forks(outline):
        _check_models(report, outline, fork)
        _check_waiting(report, outline, fork, warned)
        _check_meetings(report, outline, fork, predecessors)


def _forks(outline: Outline) -> Iterator[_Fork]:
    edges = outline.definition.edges
    left = MAX_BRANCHES
    for node, leaving in enumerate(outline.leaving):
        if outline.terminal[node] or len(leaving) < 2:  # a fork has two ways
            continue
        together: dict[bytes, list[int]] = {}
        for number in leaving:
            edge = edges[number]
            target = outline.target_of(number)
            # What an executor decides may differ from edge to edge, and a terminal node ends every branch.
            if edge.handoff or edge.condition.HasField("custom") or outline.terminal[target]:
                continue
            candidates = together.setdefault(condition_key(edge), [])
            if len(candidates) < MAX_BRANCHES and target not in candidates:
                candidates.append(target)
        for candidates in together.values():
            starts = candidates[:left]
            if len(starts) > 1:
                left -= len(starts)
                branches = [_walk(outline, node, start) for start in starts]
                shared = Counter(inner for branch in branches for inner in branch)
                yield _Fork(node=node, starts=starts, branches=branches, shared=shared)


def _walk(outline: Outline, fork: int, start: int) -> dict[int, int]:
    """Return what can be reached from `start` without passing the fork again, and over how many edges."""
    if start == fork:
        return {start: 0}
    found = {start: 0}
    todo = deque([start])
    while todo:
        node = todo.popleft()
        for target in outline.successors[node]:
            if target not in found and target != fork:
                found[target] = found[node] + 1
                todo.append(target)
    return found


def _check_models(report: Report, outline: Outline, fork: _Fork) -> None:
    nodes = outline.definition.nodes
    speakers = [
        min(
            (
                node
                for node in fork.own(branch)
                if nodes[node].action.HasField("llm_infer")
                and nodes[node].append != graph_pb2.APPEND_MODE_NONE
            ),
            default=None,
        )
        for branch in range(len(fork.branches))
    ]
    names = [nodes[node].id for node in speakers if node is not None]
    if len(names) > 1:
        listed = " and ".join(shown(name) for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # as listed
        report.warning(
            WarningCode.PARALLEL_LLM,
            outline.node_path(fork.node),
            f"{listed}{more} ask models side by side, and write to one conversation",
            "Set append to NONE, or use a Map or a Subgraph.",
        )


def _check_waiting(report: Report, outline: Outline, fork: _Fork, warned: set[int]) -> None:
    nodes = outline.definition.nodes
    depths = [max(branch.values()) for branch in fork.branches]
    for branch, found in enumerate(fork.branches):
        others = max(depths[:branch] + depths[branch + 1 :])
        for number in fork.own(branch):
            node = nodes[number]
            waits = node.interrupt or node.action.WhichOneof("kind") in _WAITING
            if not waits or number in warned or found[number] > others:
                continue
            warned.add(number)
            report.warning(
                WarningCode.WAIT_BESIDE_BRANCH,
                outline.node_path(number),
                f"while {shown(node.id)} waits, the branches beside it can't go on",
                "Put independent work into a Map or a Subgraph.",
            )


def _check_meetings(
    report: Report, outline: Outline, fork: _Fork, predecessors: Sequence[Sequence[int]]
) -> None:
    for number in sorted(fork.shared):
        node = outline.definition.nodes[number]
        count = fork.shared[number]
        if count == 1 or node.join == graph_pb2.NODE_JOIN_ALL or outline.terminal[number]:
            continue
        # Behind the place where branches meet, every node is in all of them; only the place itself is told.
        meets = number in fork.starts or any(
            fork.shared.get(before, count) < count for before in predecessors[number]
        )
        lengths = {branch[number] for branch in fork.branches if number in branch}
        if meets and len(lengths) > 1:
            source = shown(outline.definition.nodes[fork.node].id)
            report.warning(
                WarningCode.UNEVEN_PATHS,
                outline.node_path(number),
                f"branches from {source} reach {shown(node.id)} over {_listing(lengths)} edges, "
                "so it runs once for each",
                "Set join to ALL to wait for all of them.",
            )


def _listing(lengths: set[int]) -> str:
    numbers = [str(length + 1) for length in sorted(lengths)]
    return " and ".join(numbers if len(numbers) <= 4 else [*numbers[:3], "more"])  # short enough
