"""The reference of the command line is what the commands say of themselves."""

from __future__ import annotations

import click

from scripts import command_line
from stepgraph_client.command.main import stepgraph


def test_the_reference_is_fresh():
    """If this fails: make reference."""
    assert command_line.OUT.read_text() == command_line.page()


def test_every_command_and_option_is_in_it():
    text = command_line.page()

    def walk(command: click.Command, context: click.Context) -> None:
        assert f"# {context.command_path}\n" in text
        for parameter in command.params:
            for name in parameter.opts if isinstance(parameter, click.Option) else ():
                assert name in text
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, click.Context(inner, info_name=name, parent=context))

    root = click.Context(stepgraph, info_name="stepgraph")
    for name in stepgraph.list_commands(root):
        command = stepgraph.get_command(root, name)
        assert command is not None
        walk(command, click.Context(command, info_name=name, parent=root))


def test_what_can_not_be_wrapped_is_a_block_of_its_own():
    assert "\n    bash: eval " in command_line.page()
    assert "\b" not in command_line.page()
    assert "\n\n\n" not in command_line.page()
