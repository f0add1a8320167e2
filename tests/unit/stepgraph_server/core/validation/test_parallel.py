"""Warnings about branches that run side by side."""

from __future__ import annotations

from stepgraph_server.core.validation.parallel import MAX_BRANCHES
from tests.support.graphs import condition, graph, warnings

LLM: dict[str, object] = {"action": {"llm_infer": {"model": "m"}}}
ASK: dict[str, object] = {"action": {"human_approval": {}}}
JOIN: dict[str, object] = {"join": "NODE_JOIN_ALL"}


def test_model_calls_side_by_side_are_warned_of_at_their_fork() -> None:
    nodes = {"a": {}, "b": LLM, "c": {}, "d": LLM, "j": JOIN}
    ways = ["a > b", "a > c", "c > d", "b > j", "d > j"]
    assert warnings(graph(nodes, ways)) == {("PARALLEL_LLM", "nodes[0]")}


def test_model_calls_that_stay_out_of_the_conversation_are_fine() -> None:
    silent = {**LLM, "append": "APPEND_MODE_NONE"}
    nodes = {"a": {}, "b": LLM, "c": silent, "j": JOIN}
    assert warnings(graph(nodes, ["a > b", "a > c", "b > j", "c > j"])) == set()


def test_model_calls_of_which_one_is_chosen_are_fine() -> None:
    ways = [condition("a > b", "has_tool_calls"), condition("a > c", "otherwise")]
    assert warnings(graph({"a": {}, "b": LLM, "c": LLM}, ways)) == set()


def test_edges_with_equal_conditions_start_together() -> None:
    ways = [condition("a > b", "has_tool_calls"), condition("a > c", "has_tool_calls")]
    assert warnings(graph({"a": {}, "b": LLM, "c": LLM}, ways)) == {("PARALLEL_LLM", "nodes[0]")}


def test_an_executor_may_decide_equal_conditions_differently() -> None:
    ways = [condition("a > b", "custom", name="x"), condition("a > c", "custom", name="x")]
    assert warnings(graph({"a": {}, "b": LLM, "c": LLM}, ways)) == set()


def test_many_model_calls_are_counted() -> None:
    nodes = {"a": {}, **{f"b{n}": LLM for n in range(5)}}
    assert warnings(graph(nodes, [f"a > b{n}" for n in range(5)])) == {("PARALLEL_LLM", "nodes[0]")}


def test_a_node_that_waits_beside_another_branch_is_warned_of() -> None:
    nodes = {"a": {}, "ask": ASK, "work": {}, "j": JOIN}
    ways = ["a > ask", "a > work", "ask > j", "work > j"]
    assert warnings(graph(nodes, ways)) == {("WAIT_BESIDE_BRANCH", "nodes[1]")}
    asks = {**nodes, "ask": {"interrupt": True}}
    assert warnings(graph(asks, ways)) == {("WAIT_BESIDE_BRANCH", "nodes[1]")}


def test_a_node_that_waits_when_the_other_branch_is_over_is_fine() -> None:
    nodes = {"a": {}, "b": {}, "ask": ASK, "work": {}}
    assert warnings(graph(nodes, ["a > b", "b > ask", "a > work"])) == set()


def test_a_node_that_waits_is_warned_of_once() -> None:
    nodes = {"a": {}, "b": {}, "c": {}, "d": {}, "ask": ASK, "e": {}}
    ways = ["a > b", "a > c", "c > d", "b > ask", "b > e"]
    assert warnings(graph(nodes, ways)) == {("WAIT_BESIDE_BRANCH", "nodes[4]")}


def test_a_terminal_node_ends_the_other_branch() -> None:
    definition = graph({"a": {}, "b": ASK, "c": {}}, ["a > b", "a > c"], terminal_nodes=["c"])
    assert {code for code, _ in warnings(definition)} == {"NO_WAY_TO_END"}


def test_branches_of_different_length_that_meet_at_any_are_warned_of() -> None:
    ways = ["a > b", "a > c", "c > d", "b > m", "d > m", "m > n"]
    assert warnings(graph("a b c d m n", ways)) == {("UNEVEN_PATHS", "nodes[4]")}
    assert warnings(graph("a m b", ["a > m", "a > b", "b > m"])) == {("UNEVEN_PATHS", "nodes[1]")}


def test_branches_that_meet_at_all_or_evenly_are_fine() -> None:
    nodes = {"a": {}, "b": {}, "c": {}, "d": {}, "m": JOIN}
    assert warnings(graph(nodes, ["a > b", "a > c", "c > d", "b > m", "d > m"])) == set()
    assert warnings(graph("a b c m", ["a > b", "a > c", "b > m", "c > m"])) == set()


def test_many_lengths_are_listed_short() -> None:
    nodes = "a m " + " ".join(f"b{n}" for n in range(10))
    ways = ["a > m", "a > b0", "a > b1", "b1 > b2", "a > b3", "b3 > b4", "b4 > b5"]
    ways += ["a > b6", "b6 > b7", "b7 > b8", "b8 > b9"]
    ways += [f"b{n} > m" for n in (0, 2, 5, 9)]
    assert warnings(graph(nodes, ways)) == {("UNEVEN_PATHS", "nodes[1]")}


def test_a_way_back_to_the_fork_is_no_meeting() -> None:
    ways = [
        "a > b",
        "a > c",
        condition("b > a", "otherwise"),
        condition("b > d", "has_tool_calls"),
        "c > d",
        "a > a",
    ]
    assert {code for code, _ in warnings(graph("a b c d", ways))} <= {"UNEVEN_PATHS"}


def test_a_fork_that_is_very_wide_is_looked_at_only_so_far() -> None:
    count = MAX_BRANCHES + 20
    nodes = {"a": {}, **{f"b{n}": {} for n in range(count)}, f"b{count}": LLM}
    assert warnings(graph(nodes, [f"a > b{n}" for n in range(count + 1)])) == set()
