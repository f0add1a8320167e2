"""`stepgraph interrupts` and `stepgraph answer`: questions that runs wait on."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from stepgraph.v1.interrupt_pb2 import InterruptAnswer, InterruptStatus
from stepgraph_client import answers
from stepgraph_client.command.calling import Settings, perform
from stepgraph_client.command.output import plain, print_json
from stepgraph_client.command.parameters import json_value, variable
from stepgraph_client.render import question_lines, visible
from stepgraph_client.wording import answer_text, question_text, time_text

if TYPE_CHECKING:
    from stepgraph.v1.interrupt_pb2 import Interrupt
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.client import Client


@click.command("interrupts")
@click.option("--run", "run_id", default="", help="Only of this run and its child runs.")
@click.option("--answered", is_flag=True, help="Those that were answered, not the open ones.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def interrupts_command(settings: Settings, run_id: str, *, answered: bool, as_json: bool) -> None:
    """List open questions, oldest first, each with the commands that answer it."""
    status = (
        InterruptStatus.INTERRUPT_STATUS_ANSWERED
        if answered
        else InterruptStatus.INTERRUPT_STATUS_OPEN
    )

    async def work(client: Client) -> list[Interrupt]:
        found = client.interrupts(run_id, include_descendants=bool(run_id), status=status)
        return [question async for question in found]

    questions = perform(settings, work)
    if as_json:
        print_json([plain(question) for question in questions])
        return
    if not questions:
        click.echo("no questions", err=True)
    for question in questions:
        _print_question(question, settings)


def _print_question(question: Interrupt, settings: Settings) -> None:
    click.echo(f"{question.interrupt_id}  of {question.run_id}, {time_text(question.open_time)}")
    if question.status == InterruptStatus.INTERRUPT_STATUS_ANSWERED:
        asked = question_text(question).replace("\n", "\n    ")
        click.echo(visible(f"  {question.node_id}: {asked}"))
        click.echo(visible(f"  {question.answered_by}: {answer_text(question.answer)}"))
        return
    for line in question_lines(question, settings.command):
        click.echo(f"  {visible(line.text)}")


class _Answer(TypedDict):
    interrupt_id: str
    proceed: bool
    variables: tuple[tuple[str, Value], ...]
    tool_args: Value | None
    message: str
    revise: str | None
    choose: str | None
    abort: str | None
    reply: str | None
    reply_json: Value | None
    answered_by: str
    as_json: bool


@click.command("answer")
@click.argument("interrupt_id")
@click.option("--proceed", is_flag=True, help="Go on.")
@click.option(
    "--with",
    "variables",
    type=variable,
    multiple=True,
    metavar="NAME=TEXT",
    help="Go on, and write a variable; NAME:=JSON for anything but text. Can be repeated.",
)
@click.option(
    "--args", "tool_args", type=json_value, help="Go on, with these arguments of the tool."
)
@click.option("--message", default="", help="Go on, and say this to the model.")
@click.option("--revise", metavar="TEXT", help="Not like this: what should change.")
@click.option("--choose", metavar="ID", help="Go on, with this choice.")
@click.option("--abort", metavar="TEXT", help="Stop: why.")
@click.option("--reply", metavar="TEXT", help="Give a step program this text.")
@click.option(
    "--reply-json", type=json_value, metavar="JSON", help="Give a step program this JSON."
)
@click.option("--as", "answered_by", default="", help="Who answers; you, if it is not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def answer_command(settings: Settings, /, **given: Unpack[_Answer]) -> None:
    """Answer a question. Of several answers the first counts; the same answer again is fine."""
    answer = _answer(given)

    async def work(client: Client) -> Interrupt:
        return await client.answer(given["interrupt_id"], answer, answered_by=given["answered_by"])

    question = perform(settings, work)
    if given["as_json"]:
        print_json(plain(question))
    else:
        text = f"{question.interrupt_id}: {answer_text(question.answer)}; {question.run_id} goes on"
        click.echo(visible(text))


def _answer(given: _Answer) -> InterruptAnswer:
    """Return the one answer that was given."""
    found: list[InterruptAnswer] = []
    if given["variables"] or given["tool_args"] is not None or given["message"]:
        args = given["tool_args"]
        found.append(
            answers.proceed_with(
                dict(given["variables"]),
                tool_args=None if args is None else args.json,
                message=given["message"],
            )
        )
    elif given["proceed"]:
        found.append(answers.proceed())
    if given["revise"] is not None:
        found.append(answers.revise(given["revise"]))
    if given["choose"] is not None:
        found.append(answers.choose(given["choose"]))
    if given["abort"] is not None:
        found.append(answers.abort(given["abort"]))
    replies = [each for each in (given["reply"], given["reply_json"]) if each is not None]
    found += [answers.reply(each) for each in replies]
    if len(found) != 1:
        message = "give one answer: --proceed, --with NAME=VALUE, --revise TEXT, --choose ID, --abort TEXT or --reply TEXT"
        raise click.UsageError(message)
    return found[0]
