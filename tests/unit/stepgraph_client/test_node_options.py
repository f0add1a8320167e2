from __future__ import annotations

from stepgraph_client import node_options

NODES = (
    node_options.LlmOptions,
    node_options.StepOptions,
    node_options.MapOptions,
    node_options.SubgraphOptions,
)


def test_every_kind_of_node_takes_what_all_nodes_take() -> None:
    for options in NODES:
        assert options.__optional_keys__ >= node_options.NodeOptions.__optional_keys__


def test_nothing_has_to_be_given() -> None:
    for options in (*NODES, node_options.GraphOptions, node_options.EdgeOptions):
        assert not options.__required_keys__
