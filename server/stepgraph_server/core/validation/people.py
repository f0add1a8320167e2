"""Questions to people: their options, their schema, and the answer that is given when nobody answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepgraph_server.core import json_text, schemas
from stepgraph_server.core.json_text import JsonTextError
from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.numbers import check_positive
from stepgraph_server.core.validation.report import Report, at_key, shown
from stepgraph_server.core.validation.texts import (
    check_count,
    check_id,
    check_json_object,
    check_schema,
    check_size,
    check_template,
    check_written_variable,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph.v1.graph_pb2 import GraphNode
    from stepgraph.v1.interrupt_pb2 import InterruptAnswer, InterruptOption, InterruptOptions
    from stepgraph.v1.value_pb2 import Value
    from stepgraph_server.core.json_text import JsonValue

#: Actions that call tools, each of which may need approval.
_CALLERS: Final = ("tool_call", "run_requested_tools", "step")
MAX_OPTIONS: Final = 32
MAX_ANSWER_VARIABLES: Final = 64
MAX_PROMPT_BYTES: Final = 16 * 1024
MAX_FEEDBACK_BYTES: Final = 64 * 1024
MAX_MESSAGE_BYTES: Final = 256 * 1024
MAX_INLINE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an answer must fit.

    Attributes:
        options: The ids that may be chosen.
        has_schema: Plain Proceed is refused.
        schema: What the variables of ProceedWith must satisfy; empty if there is nothing, or it is wrong.
        about_one_call: The answer may bring other arguments.
        approves: It is about tools, so the answer brings nothing else.
    """

    options: frozenset[str]
    has_schema: bool
    schema: str
    about_one_call: bool
    approves: bool = False


def check_options(report: Report, path: str, options: Sequence[InterruptOption]) -> None:
    """Check what may be chosen."""
    check_count(report, path, options, MAX_OPTIONS)
    seen: set[str] = set()
    for index, option in enumerate(options):
        where = f"{path}[{index}].id"
        if check_id(report, where, option.id, "an option") and option.id in seen:
            report.problem(ProblemCode.DUPLICATE_ID, where, f"the option {option.id} occurs twice")
        seen.add(option.id)


def check_question(report: Report, path: str, node: GraphNode) -> None:
    """Check the interrupt_options of a node, which are present; `path` is the node's."""
    asked = node.interrupt_options
    where = f"{path}.interrupt_options"
    asks = node.interrupt or node.action.HasField("human_approval")
    approves = not asks and node.action.WhichOneof("kind") in _CALLERS
    if approves:
        _check_approvals(report, where, asked)
    elif not asks:
        report.warning(
            WarningCode.FIELD_IGNORED,
            where,
            "the node asks nobody",
            "Set interrupt, or use a HumanApproval.",
        )
    if check_template(report, f"{where}.description", asked.description) is not None:
        check_size(report, f"{where}.description", asked.description, MAX_PROMPT_BYTES)
    check_options(report, f"{where}.options", asked.options)
    is_right = check_schema(report, f"{where}.answer_schema", asked.answer_schema)
    if asked.HasField("deadline"):
        hint = "Leave it out to wait for ever."
        check_positive(report, f"{where}.deadline", asked.deadline, hint)
    if not asked.HasField("default_answer"):
        return
    if not asked.HasField("deadline"):
        report.warning(
            WarningCode.FIELD_IGNORED,
            f"{where}.default_answer",
            "without a deadline it is never given",
            "Set a deadline.",
        )
    question = _question(node, asked.answer_schema if is_right else "", approves=approves)
    _check_answer(report, f"{where}.default_answer", asked.default_answer, question)


def _check_approvals(report: Report, path: str, asked: InterruptOptions) -> None:
    """Report what has no effect on the approvals of the tools that a node calls: these ask about the call as it is."""
    for name in ("description", "options", "answer_schema"):
        if getattr(asked, name):
            text = "the node itself asks nobody, and questions about its tools show the call"
            hint = "Set interrupt to ask before the node acts, or leave it out."
            report.warning(WarningCode.FIELD_IGNORED, f"{path}.{name}", text, hint)


def _question(node: GraphNode, schema: str, *, approves: bool) -> Question:
    """Put together what a node asks: its interrupt_options say it, or else its HumanApproval; or what is asked about its tools."""
    if approves:
        return Question(
            options=frozenset(), has_schema=False, schema="", about_one_call=True, approves=True
        )
    asked, approval = node.interrupt_options, node.action.human_approval
    if not asked.answer_schema and approval.answer_schema:
        # What is wrong with that one is reported where it stands.
        schema = (
            approval.answer_schema if check_schema(Report(), "", approval.answer_schema) else ""
        )
    return Question(
        options=frozenset(option.id for option in asked.options or approval.options),
        has_schema=bool(asked.answer_schema or approval.answer_schema),
        schema=schema,
        about_one_call=node.action.HasField("tool_call"),
    )


def _check_answer(report: Report, path: str, answer: InterruptAnswer, question: Question) -> None:
    """Check a default answer. An unset variant is reported with the shape."""
    match answer.WhichOneof("kind"):
        case "proceed":
            if question.has_schema:
                text = "plain Proceed is refused where there is an answer_schema"
                report.problem(
                    ProblemCode.DEFAULT_ANSWER_INVALID, f"{path}.proceed", text, "Use ProceedWith."
                )
        case "proceed_with":
            _check_proceed_with(report, f"{path}.proceed_with", answer.proceed_with, question)
        case "choose":
            chosen = answer.choose.option_id
            if chosen not in question.options:
                text = f"the question has no option {shown(chosen)}"
                hint = report.closest(chosen, question.options) or "Give the question options."
                report.problem(ProblemCode.UNKNOWN_OPTION, f"{path}.choose.option_id", text, hint)
        case "revise":
            check_size(
                report, f"{path}.revise.feedback", answer.revise.feedback, MAX_FEEDBACK_BYTES
            )
        case "abort":
            check_size(report, f"{path}.abort.reason", answer.abort.reason, MAX_FEEDBACK_BYTES)
        case "reply" | "failed" as kind:
            text = "only the Suspend of a step program takes this answer"
            report.problem(ProblemCode.DEFAULT_ANSWER_INVALID, f"{path}.{kind}", text)
        case _:
            pass


def _check_proceed_with(
    report: Report, path: str, answer: InterruptAnswer.ProceedWith, question: Question
) -> None:
    check_count(report, f"{path}.variables", answer.variables, MAX_ANSWER_VARIABLES)
    check_size(report, f"{path}.message", answer.message, MAX_MESSAGE_BYTES)
    if answer.HasField("tool_args"):
        if question.about_one_call:
            check_json_object(report, f"{path}.tool_args", answer.tool_args or "-")
        else:
            text = "the question is not about one tool call"
            report.problem(ProblemCode.DEFAULT_ANSWER_INVALID, f"{path}.tool_args", text)
    if question.approves and (answer.variables or answer.message):
        text = "the approval of a tool takes tool_args and nothing else"
        report.problem(ProblemCode.DEFAULT_ANSWER_INVALID, path, text)
        return
    content: dict[str, JsonValue] = {}
    complete = True
    for name in sorted(answer.variables):
        where = at_key(f"{path}.variables", name)
        check_written_variable(report, where, name)
        try:
            content[name] = _content(report, where, answer.variables[name])
        except JsonTextError as error:
            report.problem(ProblemCode.JSON_INVALID, f"{where}.json", str(error))
            complete = False
    if question.schema and complete:
        violation = schemas.check(question.schema, content)
        if violation:
            report.problem(
                ProblemCode.DEFAULT_ANSWER_INVALID,
                f"{path}.variables",
                f"breaks the answer_schema: {violation}",
            )


def _content(report: Report, path: str, value: Value) -> JsonValue:
    """Return what the answer_schema sees of a value: text as a string, JSON as it is, anything else as null."""
    match value.WhichOneof("kind"):
        case "text":
            check_size(report, f"{path}.text", value.text, MAX_INLINE_BYTES)
            return value.text
        case "json":
            check_size(report, f"{path}.json", value.json, MAX_INLINE_BYTES)
            return json_text.parse(value.json)
        case "blob":
            if len(value.blob.data) > MAX_INLINE_BYTES:
                text = f"has {len(value.blob.data)} bytes, of at most {MAX_INLINE_BYTES}"
                report.problem(ProblemCode.TOO_LARGE, f"{path}.blob.data", text)
            return None
        case _:
            return None
