from __future__ import annotations

from stepgraph_server.core.work import MAX_NODE_WORK, NODE_UNITS, Work


def test_a_node_may_do_its_share_and_no_more() -> None:
    work = Work()
    work.begin_node(edges=0)
    assert work.spend(MAX_NODE_WORK)
    assert not work.spend(1)


def test_each_node_has_a_share_of_its_own() -> None:
    work = Work()
    for _ in range(3):
        work.begin_node(edges=0)
        assert work.spend(MAX_NODE_WORK)
    assert work.done == 3 * (MAX_NODE_WORK + NODE_UNITS)


def test_what_was_not_spent_may_be_spent_again() -> None:
    work = Work()
    work.begin_node(edges=0)
    assert work.spend(MAX_NODE_WORK)
    work.give_back(10)
    assert work.spend(10)
    assert not work.spend(1)


def test_edges_and_names_are_counted_too() -> None:
    few, many = Work(), Work()
    few.begin_node(edges=1)
    many.begin_node(edges=100)
    before = few.done
    few.look_up(5)
    assert before < few.done < many.done
