"""`stepgraph answer`: one answer to one question.

Rules: a person sees what is asked, and of which run, before anything is sent; what does not fit the question is refused here, where it
can be typed again. The server checks as well, and has the last word. Without an answer on the command line, a person at a terminal is asked.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError

from stepgraph.v1.failure_pb2 import Failure
from stepgraph.v1.interrupt_pb2 import InterruptAnswer, InterruptStatus
from stepgraph_client import answers
from stepgraph_client.command.calling import CommandError, Settings, perform
from stepgraph_client.command.completing import complete_interrupt
from stepgraph_client.command.interrupts import print_question
from stepgraph_client.command.output import ITEM_FORMS, Output, output_option
from stepgraph_client.command.parameters import json_value, variable
from stepgraph_client.command.tree import Verb
from stepgraph_client.render import answer_options
from stepgraph_client.wording import answer_text

if TYPE_CHECKING:
    from stepgraph.v1.interrupt_pb2 import Interrupt
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_client.client import Client

_WHICH = (
    "give one answer: --proceed, --with NAME=VALUE, --revise TEXT, --choose ID, --abort TEXT, "
    "--reply TEXT, --reply-json JSON or --failed CODE"
)


class _Answer(TypedDict):
    interrupt_id: str
    token: str
    proceed: bool
    variables: tuple[tuple[str, Value], ...]
    tool_args: Value | None
    message: str
    revise: str | None
    choose: str | None
    abort: str | None
    reply: str | None
    reply_json: Value | None
    failed: str | None
    answered_by: str


@click.command("answer", cls=Verb)
@click.argument("interrupt_id", required=False, default="", shell_complete=complete_interrupt)
@click.option(
    "--token", default="", help="Instead of an id: the token that another system was given."
)
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
    "--args",
    "tool_args",
    type=json_value,
    metavar="JSON",
    help="Go on, with these arguments of the tool.",
)
@click.option("--message", default="", metavar="TEXT", help="Go on, and say this to the model.")
@click.option("--revise", metavar="TEXT", help="Not like this: what should change.")
@click.option("--choose", metavar="ID", help="Go on, with this choice.")
@click.option("--abort", metavar="TEXT", help="Stop: why.")
@click.option("--reply", metavar="TEXT", help="Give a step program this text.")
@click.option(
    "--reply-json", type=json_value, metavar="JSON", help="Give a step program this JSON."
)
@click.option("--failed", metavar="CODE[:TEXT]", help="Tell a step program that it went wrong.")
@click.option("--as", "answered_by", default="", help="Who answers; you, if it is not given.")
@output_option(*ITEM_FORMS)
@click.pass_obj
def answer_command(settings: Settings, /, *, out: Output, **given: Unpack[_Answer]) -> None:
    """Answer a question. Of several answers the first counts; the same answer again is fine.

    At a terminal, without an answer: shows the question and asks for one.
    """
    if bool(given["interrupt_id"]) == bool(given["token"]):
        message = "name the question by its id, or by its --token"
        raise click.UsageError(message)
    answer = _answer(given)
    if answer is None and (given["token"] or not _is_at_terminal(out)):
        raise click.UsageError(_WHICH)
    if not given["token"]:
        question = perform(settings, lambda client: client.get_interrupt(given["interrupt_id"]))
        if answer is None:
            answer = _asked(question, settings, out)
        _refuse_what_does_not_fit(question, answer)
    assert answer is not None
    _send(settings, given, answer, out)


def _send(settings: Settings, given: _Answer, answer: InterruptAnswer, out: Output) -> None:
    async def work(client: Client) -> Interrupt:
        if given["token"]:
            return await client.answer_external(
                given["token"], answer, answered_by=given["answered_by"]
            )
        return await client.answer(given["interrupt_id"], answer, answered_by=given["answered_by"])

    question = perform(settings, work)
    if not out.document(question, ids=question.interrupt_id):
        out.text(
            f"{question.interrupt_id}: {answer_text(question.answer)}; {question.run_id} goes on"
        )


def _is_at_terminal(out: Output) -> bool:
    return out.is_for_people and sys.stdin.isatty() and sys.stdout.isatty()


def _answer(given: _Answer) -> InterruptAnswer | None:
    """Return the one answer that was given; None if there was none.

    Raises:
        UsageError: there were several.
    """
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
    for text, build in (
        (given["revise"], answers.revise),
        (given["choose"], answers.choose),
        (given["abort"], answers.abort),
        (given["failed"], _failed),
    ):
        if text is not None:
            found.append(build(text))
    replies = [each for each in (given["reply"], given["reply_json"]) if each is not None]
    found += [answers.reply(each) for each in replies]
    if len(found) > 1:
        raise click.UsageError(_WHICH)
    return found[0] if found else None


def _failed(text: str) -> InterruptAnswer:
    code, _, message = text.partition(":")
    failure = Failure(code=code, message=message.strip())
    return InterruptAnswer(failed=InterruptAnswer.Failed(failure=failure))


# At a terminal ----------------------------------------------------------------------------------------------------


def _asked(question: Interrupt, settings: Settings, out: Output) -> InterruptAnswer:
    """Ask the person at the terminal."""
    print_question(question, settings, out)
    if question.status != InterruptStatus.INTERRUPT_STATUS_OPEN:
        message = f"{question.interrupt_id} is not open any more"
        raise CommandError(message)
    words = _words(question)
    word = click.prompt("answer", type=click.Choice(words), show_choices=True)
    match word:
        case "proceed":
            return answers.proceed()
        case "with":
            name, value = variable(click.prompt("NAME=TEXT or NAME:=JSON"))
            return answers.proceed_with({name: value})
        case "args":
            given = json_value(click.prompt("arguments, as JSON"))
            return answers.proceed_with(tool_args=given.json)
        case "revise":
            return answers.revise(click.prompt("what should change"))
        case "choose":
            ids = [each.id for each in question.options]
            return answers.choose(click.prompt("which", type=click.Choice(ids)))
        case "reply":
            return answers.reply(click.prompt("reply"))
        case "reply-json":
            return answers.reply(json_value(click.prompt("reply, as JSON")))
        case "failed":
            return _failed(click.prompt("CODE, or CODE: what is wrong"))
        case _:
            return answers.abort(click.prompt("why", default="", show_default=False))


def _words(question: Interrupt) -> list[str]:
    """Return the answers that fit a question."""
    match question.reason.WhichOneof("kind"):
        case "external" | "signal":
            return ["reply"]
        case _ if question.takes_reply:
            return ["reply", "reply-json", "failed"]
        case _ if question.options:
            return ["choose", "revise", "abort"]
        case _ if question.task_id:
            return ["proceed", "args", "revise", "abort"]
        case _:
            return ["with" if question.answer_schema else "proceed", "revise", "abort"]


# Checks -----------------------------------------------------------------------------------------------------------


def _refuse_what_does_not_fit(question: Interrupt, answer: InterruptAnswer) -> None:
    """Refuse an answer that the server would refuse, in the words of what was typed."""
    if question.status != InterruptStatus.INTERRUPT_STATUS_OPEN:
        return  # The server knows who was first, and whether this is the same answer.
    kind = answer.WhichOneof("kind")
    if question.HasField("tool"):
        _refuse_what_the_tool_does_not_take(question, answer)
    if question.takes_reply and kind not in {"reply", "failed"}:
        message = (
            f"{question.interrupt_id} is asked by a step program, which takes a value; give it by "
            f"{' or '.join(answer_options(question))}"
        )
        raise click.UsageError(message)
    if kind == "choose":
        ids = [each.id for each in question.options]
        if answer.choose.option_id not in ids:
            there = f"there are {', '.join(ids)}" if ids else "it has no options"
            message = f"{question.interrupt_id} has no option {answer.choose.option_id!r}; {there}"
            raise click.UsageError(message)
    if kind == "proceed" and question.answer_schema:
        message = (
            f"{question.interrupt_id} wants values with its answer; give them by --with NAME=VALUE. "
            f"Its schema: {question.answer_schema}"
        )
        raise click.UsageError(message)
    if kind == "proceed_with" and question.answer_schema:
        variables = answer.proceed_with.variables
        given = {name: _python(value) for name, value in variables.items()}
        _check_schema(question, question.answer_schema, given)
    if kind == "reply" and question.answer_schema:
        is_text = answer.reply.value.WhichOneof("kind") == "text"
        hint = " (this is text; --reply-json gives anything else)" if is_text else ""
        _check_schema(question, question.answer_schema, _python(answer.reply.value), hint)


def _refuse_what_the_tool_does_not_take(question: Interrupt, answer: InterruptAnswer) -> None:
    name, changed = question.tool.tool_name, answer.proceed_with
    if question.task_id and (changed.variables or changed.message):
        message = f"{question.interrupt_id} is about one call of {name}: --args changes it, and nothing else can be given"
        raise click.UsageError(message)
    if changed.HasField("tool_args") and question.tool.input_schema:
        _check_schema(question, question.tool.input_schema, json.loads(changed.tool_args))


def _python(value: Value) -> object:
    if value.WhichOneof("kind") == "json":
        content: object = json.loads(value.json)
        return content
    return value.text


def _check_schema(question: Interrupt, schema: str, given: object, hint: str = "") -> None:
    try:
        validator = Draft202012Validator(json.loads(schema))
        validator.validate(given)
    except (ValueError, SchemaError):
        # Not ours to judge: the server took the schema, and judges the answer.
        return
    except ValidationError as error:
        where = ".".join(str(each) for each in error.absolute_path)
        message = (
            f"this does not fit what {question.interrupt_id} asks for: "
            f"{f'{where}: ' if where else ''}{error.message}{hint}. Its schema: {schema}"
        )
        raise click.UsageError(message) from error
