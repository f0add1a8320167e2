"""Every RPC has a verb: whoever adds one without the other is told here."""

from __future__ import annotations

import click
import pytest

from stepgraph.v1 import (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)
from stepgraph_client.command.main import stepgraph
from stepgraph_client.command.verbs import EXECUTORS_OWN, VERBS

MODULES = (
    executor_service_pb2,
    graph_service_pb2,
    interrupt_service_pb2,
    run_service_pb2,
    value_service_pb2,
)


def test_every_rpc_has_a_verb_or_is_for_executors_alone() -> None:
    rpcs = {
        f"{service.name}/{method.name}"
        for module in MODULES
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert rpcs - set(VERBS) == EXECUTORS_OWN, "give it a verb, and a line in verbs.py"
    assert set(VERBS) <= rpcs


@pytest.mark.parametrize("words", sorted(VERBS.values()))
def test_every_verb_exists_with_its_option(words) -> None:
    command: click.Command = stepgraph
    context = click.Context(stepgraph)
    for word in words.split():
        if word.startswith("--"):
            assert word in {name for each in command.params for name in each.opts}
            continue
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None, f"there is no {word} in {words}"
        command = found
    assert not isinstance(command, click.Group)
