"""What can be reached from where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepgraph_server.core.topology import (
    components,
    mask_of,
    members,
    reach_masks,
    reachable_from,
    reversed_graph,
)

graphs = st.integers(0, 9).flatmap(
    lambda count: st.lists(
        st.lists(st.integers(0, max(0, count - 1)), max_size=4), min_size=count, max_size=count
    )
)


def walk(successors: list[list[int]], start: int) -> set[int]:
    """Return what can be reached over one edge or more, the slow way."""
    found: set[int] = set()
    todo = list(successors[start])
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            todo.extend(successors[node])
    return found


@given(graphs)
def test_reach_is_what_a_walk_finds(successors: list[list[int]]) -> None:
    masks = reach_masks(successors)
    for node in range(len(successors)):
        assert set(members(masks[node])) == walk(successors, node)


@given(graphs)
def test_two_nodes_are_in_one_component_if_each_reaches_the_other(
    successors: list[list[int]],
) -> None:
    parts = components(successors)
    assert sorted(node for part in parts for node in part) == list(range(len(successors)))
    place = {node: number for number, part in enumerate(parts) for node in part}
    for one in range(len(successors)):
        for other in range(len(successors)):
            mutual = other in walk(successors, one) and one in walk(successors, other)
            assert (place[one] == place[other]) == (one == other or mutual)


@given(graphs)
def test_a_component_comes_after_all_that_it_leads_to(successors: list[list[int]]) -> None:
    place = {node: n for n, part in enumerate(components(successors)) for node in part}
    for node, targets in enumerate(successors):
        assert all(place[target] <= place[node] for target in targets)


@given(graphs)
def test_what_starts_reach_includes_them(successors: list[list[int]]) -> None:
    if successors:
        assert set(members(reachable_from(successors, [0]))) == walk(successors, 0) | {0}


def test_a_graph_turned_round_twice_is_itself() -> None:
    assert reversed_graph([[1, 1], [2], []]) == [[], [0, 0], [1]]
    assert reversed_graph(reversed_graph([[1, 1], [2], []])) == [[1, 1], [2], []]


def test_a_chain_of_many_nodes_needs_no_recursion() -> None:
    count = 20_000
    masks = reach_masks([[node + 1] for node in range(count - 1)] + [[]])
    assert masks[0].bit_count() == count - 1


def test_a_set_is_a_mask() -> None:
    assert mask_of([0, 3]) == 0b1001
    assert list(members(0b1001)) == [0, 3]
    assert list(members(0)) == []
