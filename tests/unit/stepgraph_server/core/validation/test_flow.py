"""How nodes and edges hang together."""

from __future__ import annotations

from tests.support.graphs import condition, graph, problems, supported, warnings


def test_a_node_that_nothing_leads_to_is_told() -> None:
    definition = graph("a b c", ["b > c", "a > a"])
    assert problems(definition) == {
        ("UNREACHABLE_NODE", "nodes[1]"),
        ("UNREACHABLE_NODE", "nodes[2]"),
    }


def test_nothing_is_reached_through_a_terminal_node() -> None:
    definition = graph("a b", ["a > b"], terminal_nodes=["a"])
    assert problems(definition) == {("UNREACHABLE_NODE", "nodes[1]")}
    assert ("EDGE_NEVER_FOLLOWED", "edges[0]") in warnings(definition)


def test_an_unknown_beginning_makes_nothing_else_unreachable() -> None:
    assert problems(graph("a b", entry_point="x")) == {("UNKNOWN_NODE", "entry_point")}


def test_the_second_of_two_equal_nodes_is_not_unreachable_besides() -> None:
    definition = graph("a")
    definition.nodes.add(id="a").action.assign.SetInParent()
    assert problems(definition) == {("DUPLICATE_ID", "nodes[1].id")}


def test_a_node_that_only_a_step_could_spawn_is_warned_of() -> None:
    step = {"action": {"step": {"program": "p"}}}
    spawned = {"action": {"tool_call": {"tool_name": "search"}}}
    definition = graph({"a": step, "b": spawned, "c": {}})
    assert supported(problems(definition)) == {("UNREACHABLE_NODE", "nodes[2]")}
    assert warnings(definition) == {("SPAWNED_ONLY", "nodes[1]")}


def test_a_way_that_stops_before_the_end_is_warned_of_where_it_stops() -> None:
    definition = graph("a b c end", ["a > b", "b > c", "a > end"], terminal_nodes=["end"])
    assert ("NO_WAY_TO_END", "nodes[2]") in warnings(definition)
    assert ("NO_WAY_TO_END", "nodes[1]") not in warnings(definition)


def test_a_graph_without_terminal_nodes_may_stop_anywhere() -> None:
    assert warnings(graph("a b", ["a > b"])) == set()


def test_a_loop_that_nothing_leads_out_of_is_warned_of_once() -> None:
    loop = graph("a b c", ["a > b", "b > c", "c > b"])
    assert warnings(loop) == {("LOOP_WITHOUT_EXIT", "nodes[1]")}
    assert warnings(graph("a", ["a > a"])) == {("LOOP_WITHOUT_EXIT", "nodes[0]")}


def test_a_loop_with_an_exit_is_fine() -> None:
    ways = [
        "a > b",
        condition("b > a", "otherwise"),
        condition("b > c", "has_tool_calls"),
    ]
    assert warnings(graph("a b c", ways, terminal_nodes=["c"])) == set()


def test_a_join_of_one_branch_is_warned_of() -> None:
    nodes = {"a": {}, "j": {"join": "NODE_JOIN_ALL"}}
    once = condition("a > j", "has_tool_calls")
    twice = condition("a > j", "is_final_answer")
    assert warnings(graph(nodes, [once, twice])) == {("JOIN_ONE_SOURCE", "nodes[1].join")}


def test_a_join_of_two_branches_is_fine() -> None:
    nodes = {"a": {}, "b": {}, "c": {}, "j": {"join": "NODE_JOIN_ALL"}}
    assert warnings(graph(nodes, ["a > b", "a > c", "b > j", "c > j"])) == set()


def test_a_join_on_a_cycle_is_warned_of() -> None:
    nodes = {"a": {}, "j": {"join": "NODE_JOIN_ALL"}, "b": {}, "c": {}}
    ways = [
        "a > j",
        "j > b",
        condition("b > j", "otherwise"),
        condition("b > c", "has_tool_calls"),
    ]
    assert warnings(graph(nodes, ways)) == {("JOIN_ON_CYCLE", "nodes[1].join")}


def test_otherwise_beside_what_always_holds_is_told() -> None:
    path = "edges[1].condition.otherwise"
    for always in ("a > b", condition("a > b", "always")):
        definition = graph("a b c", [always, condition("a > c", "otherwise")])
        assert problems(definition) == {("OTHERWISE_NEVER_HOLDS", path)}


def test_otherwise_beside_what_can_be_spent_is_fine() -> None:
    ways = [("a > b", {"max_traversals": 2}), condition("a > c", "otherwise")]
    assert problems(graph("a b c", ways)) == set()


def test_otherwise_does_not_mind_a_handoff() -> None:
    nodes = {"a": {"action": {"step": {"program": "p"}}}, "b": {}, "c": {}}
    ways = [("a > b", {"handoff": True}), condition("a > c", "otherwise")]
    assert supported(problems(graph(nodes, ways))) == set()


def test_two_otherwise_are_warned_of() -> None:
    ways = [condition("a > b", "otherwise"), condition("a > c", "otherwise")]
    assert warnings(graph("a b c", ways)) == {("TWO_OTHERWISE", "edges[1].condition.otherwise")}


def test_an_unconditional_edge_beside_an_error_is_warned_of() -> None:
    ways = [condition("a > b", "error_occurred"), "a > c"]
    assert warnings(graph("a b c", ways)) == {("UNCONDITIONAL_BESIDE_ERROR", "edges[1]")}
    ways = [condition("a > b", "error_occurred"), condition("a > c", "otherwise")]
    assert warnings(graph("a b c", ways)) == set()


def test_equal_edges_are_warned_of() -> None:
    ways = ["a > b", condition("a > b", "always")]
    assert warnings(graph("a b", ways)) == {("DUPLICATE_EDGE", "edges[1]")}
    ways = [
        condition("a > b", "state_equals", variable="x", value="1"),
        condition("a > b", "state_equals", variable="x", value="2"),
        condition("a > b", "state_equals", variable="x", value="1"),
    ]
    assert warnings(graph("a b", ways)) == {("DUPLICATE_EDGE", "edges[2]")}
