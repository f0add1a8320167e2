"""What can be reached from where: algorithms over nodes that are numbers.

Rules: a graph is `successors[i]`, the numbers of the nodes that `i` leads to; parallel edges may repeat. A set of nodes
is an `int` whose bit `i` is node `i`. Every function is about linear in nodes and edges, and none recurses: a chain of
2,000 nodes is a legal graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Successors: TypeAlias = Sequence[Sequence[int]]


def components(successors: Successors) -> list[list[int]]:
    """Return the strongly connected components, each after all that it leads to (Tarjan, without recursion)."""
    number = [-1] * len(successors)  # in order of discovery
    lowest = [0] * len(successors)
    on_stack = [False] * len(successors)
    stack: list[int] = []
    found: list[list[int]] = []
    count = 0
    for root in range(len(successors)):
        if number[root] >= 0:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(successors[root]))]
        number[root] = lowest[root] = count
        count += 1
        stack.append(root)
        on_stack[root] = True
        while work:
            node, rest = work[-1]
            for target in rest:
                if number[target] < 0:
                    number[target] = lowest[target] = count
                    count += 1
                    stack.append(target)
                    on_stack[target] = True
                    work.append((target, iter(successors[target])))
                    break
                if on_stack[target]:
                    lowest[node] = min(lowest[node], number[target])
            else:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    found.append(_pop_component(stack, on_stack, node))
    return found


def _pop_component(stack: list[int], on_stack: list[bool], root: int) -> list[int]:
    component: list[int] = []
    while True:
        node = stack.pop()
        on_stack[node] = False
        component.append(node)
        if node == root:
            return component


def reach_masks(successors: Successors) -> list[int]:
    """Return for each node the set of nodes that can be reached over one edge or more; itself only through a cycle."""
    masks = [0] * len(successors)
    for component in components(successors):
        own = mask_of(component)
        mask = 0
        for node in component:
            for target in successors[node]:
                # Targets outside are finished, because components come in this order; those inside add their bits.
                mask |= (1 << target) | masks[target]
        if len(component) > 1:
            mask |= own
        for node in component:
            masks[node] = mask
    return masks


def reachable_from(successors: Successors, starts: Sequence[int]) -> int:
    """Return the set of nodes that can be reached from any of `starts`, these included."""
    seen = [False] * len(successors)
    todo = list(starts)
    for node in todo:
        seen[node] = True
    while todo:
        for target in successors[todo.pop()]:
            if not seen[target]:
                seen[target] = True
                todo.append(target)
    return mask_of([node for node, is_seen in enumerate(seen) if is_seen])


def reversed_graph(successors: Successors) -> list[list[int]]:
    """Return the graph with every edge turned round."""
    predecessors: list[list[int]] = [[] for _ in successors]
    for node, targets in enumerate(successors):
        for target in targets:
            predecessors[target].append(node)
    return predecessors


def mask_of(nodes: Sequence[int]) -> int:
    """Return the set of these nodes."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def members(mask: int) -> Iterator[int]:
    """Return the nodes of a set, in order."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
