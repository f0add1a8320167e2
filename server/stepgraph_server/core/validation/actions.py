"""What each action demands of its fields.

Rules: one function per action, and a table that a test compares with the schema's variants. Whether the server can do an
action yet is not asked here, see `support`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, assert_never

from stepgraph.v1 import policy_pb2
from stepgraph_server.core.names import MAX_KEPT_SIGNALS, MAX_MODEL_CHARACTERS, wanted_of
from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.conditions import (
    Kind,
    check_condition_text,
    check_expression,
    check_paradigm,
)
from stepgraph_server.core.validation.numbers import check_positive
from stepgraph_server.core.validation.people import MAX_PROMPT_BYTES, check_options
from stepgraph_server.core.validation.report import at_key, shown
from stepgraph_server.core.validation.texts import (
    check_args_template,
    check_count,
    check_filter,
    check_id,
    check_json_object,
    check_named_by_template,
    check_schema,
    check_size,
    check_template,
    check_tool_name,
    check_variable,
    check_written_variable,
)

if TYPE_CHECKING:
    from stepgraph.v1.graph_pb2 import GraphRef, NodeAction, NodeBody
    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report

MAX_TEMPERATURE: Final = 2.0
MAX_STEP_VARIABLES: Final = 64
MAX_EXPRESSIONS: Final = 256
"""Of one Assign: all of them are evaluated in one go, while every other run waits."""
#: What can run as a body: see NodeBody.
BODY_ACTIONS: Final = frozenset(
    {"llm_infer", "tool_call", "delegate", "human_approval", "subgraph", "sleep", "step"}
)
_REFERENCE: Final = re.compile(
    r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(?:@[1-9][0-9]{0,9})?|sha256:[0-9a-f]{64}"
)


def check_action(report: Report, path: str, action: NodeAction, outline: Outline) -> None:  # noqa: C901, PLR0912  # a table of variants
    """Check an action; `path` is its own. An unset variant is reported with the shape."""
    kind = action.WhichOneof("kind")
    where = f"{path}.{kind}"
    match kind:
        case "llm_infer":
            _check_llm_infer(report, where, action.llm_infer, outline)
        case "tool_call":
            _check_tool_call(report, where, action.tool_call)
        case "delegate":
            _check_delegate(report, where, action.delegate)
        case "human_approval":
            _check_human_approval(report, where, action.human_approval)
        case "condition_check":
            text = action.condition_check.condition
            check_condition_text(report, f"{where}.condition", text, outline)
        case "switch_paradigm":
            _check_switch(report, f"{where}.paradigm", action.switch_paradigm.paradigm, outline)
        case "run_requested_tools":
            check_filter(report, f"{where}.filter", action.run_requested_tools.filter)
        case "assign":
            _check_assign(report, where, action.assign, outline)
        case "step":
            _check_step(report, where, action.step)
        case "map":
            _check_map(report, where, action.map, outline)
        case "subgraph":
            _check_subgraph(report, where, action.subgraph)
        case "sleep":
            pass  # its time is checked with the shape
        case "wait_signal":
            _check_wait_signal(report, where, action.wait_signal)
        case None:
            pass
        case _ as unreachable:
            assert_never(unreachable)


def _check_llm_infer(
    report: Report, path: str, action: NodeAction.LlmInfer, outline: Outline
) -> None:
    check_template(report, f"{path}.system_prompt_override", action.system_prompt_override)
    check_template(report, f"{path}.prompt_template", action.prompt_template)
    check_schema(report, f"{path}.output_schema", action.output_schema)
    check_json_object(report, f"{path}.provider_options", action.provider_options)
    check_filter(report, f"{path}.tool_filter_override", action.tool_filter_override)
    if not action.model and not outline.definition.default_model:
        report.problem(
            ProblemCode.NO_MODEL,
            f"{path}.model",
            "names no model, and the graph has no default_model",
            "Name a model here, or set default_model.",
        )
    check_model(report, f"{path}.model", action.model)
    if action.HasField("temperature") and not 0 <= action.temperature <= MAX_TEMPERATURE:
        text = f"must be from 0 to {MAX_TEMPERATURE:g}, not {action.temperature:g}"
        report.problem(ProblemCode.OUT_OF_RANGE, f"{path}.temperature", text)
    if action.HasField("max_tokens") and action.max_tokens < 1:
        report.problem(
            ProblemCode.OUT_OF_RANGE,
            f"{path}.max_tokens",
            "must be at least 1",
            "Leave it out for the model's own limit.",
        )
    _check_tool_choice(report, path, action)


def check_model(report: Report, path: str, text: str) -> None:
    """Check a template that names a model, if there is one."""
    template = check_template(report, path, text)
    if template is not None and not template.placeholders() and len(text) > MAX_MODEL_CHARACTERS:
        message = f"has {len(text)} characters, of at most {MAX_MODEL_CHARACTERS}"
        report.problem(ProblemCode.TOO_LARGE, path, message)


def _check_tool_choice(report: Report, path: str, action: NodeAction.LlmInfer) -> None:
    choice = action.tool_choice.WhichOneof("kind")
    if choice == "named":
        check_id(report, f"{path}.tool_choice.named.name", action.tool_choice.named.name, "a tool")
    if action.include_tool_definitions:
        return
    ignored = [
        name
        for name, is_set in (
            ("tool_choice", choice in ("required", "named")),
            ("tool_filter_override", action.HasField("tool_filter_override")),
        )
        if is_set
    ]
    for name in ignored:
        report.warning(
            WarningCode.FIELD_IGNORED,
            f"{path}.{name}",
            "the model gets no tools",
            "Set include_tool_definitions.",
        )


def _check_tool_call(report: Report, path: str, action: NodeAction.ToolCall) -> None:
    template = check_template(report, f"{path}.tool_name", action.tool_name)
    if template is not None and not template.placeholders():
        check_tool_name(report, f"{path}.tool_name", action.tool_name)
    if action.HasField("args_template"):
        check_args_template(
            report, f"{path}.args_template", action.args_template, must_be_object=True
        )


def _check_delegate(report: Report, path: str, action: NodeAction.Delegate) -> None:
    check_named_by_template(report, f"{path}.agent_kind", action.agent_kind, "a kind of agent")
    check_template(report, f"{path}.task_template", action.task_template)


def _check_human_approval(report: Report, path: str, action: NodeAction.HumanApproval) -> None:
    if check_template(report, f"{path}.description", action.description) is not None:
        check_size(report, f"{path}.description", action.description, MAX_PROMPT_BYTES)
    check_options(report, f"{path}.options", action.options)
    check_schema(report, f"{path}.answer_schema", action.answer_schema)


def _check_switch(report: Report, path: str, paradigm: str, outline: Outline) -> None:
    if paradigm:
        check_paradigm(report, path, paradigm, outline)
    elif not outline.definition.paradigms:
        report.problem(
            ProblemCode.UNKNOWN_PARADIGM,
            path,
            "it would follow the carried decision, but the graph has no paradigm to switch to",
            "List paradigms.",
        )


def _check_assign(report: Report, path: str, action: NodeAction.Assign, outline: Outline) -> None:
    if len(action.set) > MAX_EXPRESSIONS:
        report.problem(
            ProblemCode.TOO_MANY,
            f"{path}.set",
            f"has {len(action.set)} expressions, of at most {MAX_EXPRESSIONS}",
            "Spread them over several nodes, or let one expression give an object.",
        )
        return
    for variable in sorted(action.set):
        where = at_key(f"{path}.set", variable)
        check_written_variable(report, where, variable)
        check_expression(report, where, action.set[variable], outline, kind=Kind.VALUE)
    for index, variable in enumerate(action.unset):
        where = f"{path}.unset[{index}]"
        check_written_variable(report, where, variable)
        if variable in action.set:
            report.problem(
                ProblemCode.WRITTEN_TWICE,
                where,
                f"{shown(variable)} is set by the same node",
                "Unset it in another node.",
            )
    check_template(report, f"{path}.message_template", action.message_template)


def _check_step(report: Report, path: str, action: NodeAction.Step) -> None:
    check_id(report, f"{path}.program", action.program, "a step program")
    if action.HasField("input_template"):
        check_args_template(
            report, f"{path}.input_template", action.input_template, must_be_object=False
        )
    check_count(report, f"{path}.variables", action.variables, MAX_STEP_VARIABLES)
    for index, variable in enumerate(action.variables):
        check_variable(report, f"{path}.variables[{index}]", variable)


def _check_map(report: Report, path: str, action: NodeAction.Map, outline: Outline) -> None:
    check_expression(report, f"{path}.items", action.items, outline, kind=Kind.VALUE)
    if not action.HasField("body"):
        report.problem(
            ProblemCode.REQUIRED, f"{path}.body", "a Map needs a body", "Name a node or a program."
        )
        return
    _check_body(report, f"{path}.body", action.body, outline)
    if action.drop_failed and action.join != policy_pb2.JOIN_POLICY_ALL_SETTLED:
        report.warning(
            WarningCode.FIELD_IGNORED,
            f"{path}.drop_failed",
            "without ALL_SETTLED no item that failed is in the list",
            "Set join to ALL_SETTLED.",
        )
    body = outline.index.get(action.body.node_id)
    if body is not None and outline.definition.nodes[body].action.step.HasField("input_template"):
        report.warning(
            WarningCode.FIELD_IGNORED,
            f"{outline.node_path(body)}.action.step.input_template",
            "as a body its input is the item",
            "Leave it out, unless edges lead to the node as well.",
        )


def _check_body(report: Report, path: str, body: NodeBody, outline: Outline) -> None:
    kind = body.WhichOneof("kind")
    if kind == "program":
        check_id(report, f"{path}.program", body.program, "a step program")
    if kind != "node_id":
        return
    number = outline.index.get(body.node_id)
    if number is None:
        message = f"there is no node {shown(body.node_id)}"
        hint = report.closest(body.node_id, outline.index.keys())
        report.problem(ProblemCode.UNKNOWN_NODE, f"{path}.node_id", message, hint)
        return
    action = outline.definition.nodes[number].action.WhichOneof("kind")
    if action is not None and action not in BODY_ACTIONS:
        report.problem(
            ProblemCode.ACTION_NOT_ALLOWED,
            f"{path}.node_id",
            f"{action} can't be a body",
            f"A body does one of {', '.join(sorted(BODY_ACTIONS))}.",
        )


def _check_subgraph(report: Report, path: str, action: NodeAction.Subgraph) -> None:
    if action.HasField("graph"):
        check_reference(report, f"{path}.graph", action.graph)
    else:
        report.problem(
            ProblemCode.REQUIRED, f"{path}.graph", "a Subgraph needs a graph", "Refer to one."
        )
    for variable in sorted(action.input):
        where = at_key(f"{path}.input", variable)
        check_written_variable(report, where, variable)
        check_template(report, where, action.input[variable])
    for variable in sorted(action.output):
        where = at_key(f"{path}.output", variable)
        check_written_variable(report, where, variable)
        check_variable(report, where, wanted_of(action.output[variable])[0])
    if action.HasField("time_limit"):
        hint = "Leave it out for the parent's."
        check_positive(report, f"{path}.time_limit", action.time_limit, hint)


def is_reference(text: str) -> bool:
    """Whether a text has the form of a reference to a graph: `name`, `name@3` or `sha256:…`."""
    return _REFERENCE.fullmatch(text) is not None


def check_reference(report: Report, path: str, graph: GraphRef) -> None:
    """Check the form of a reference. Whether it leads to a graph is known where graphs are kept."""
    if graph.WhichOneof("kind") == "reference" and not is_reference(graph.reference):
        report.problem(
            ProblemCode.NAME_INVALID,
            f"{path}.reference",
            f"{shown(graph.reference)} does not refer to a graph",
            "Write name, name@3, or sha256: and 64 hexadecimal digits.",
        )


def _check_wait_signal(report: Report, path: str, action: NodeAction.WaitSignal) -> None:
    check_id(report, f"{path}.name", action.name, "a signal")
    check_template(report, f"{path}.correlation", action.correlation)
    if action.count > MAX_KEPT_SIGNALS:
        report.problem(
            ProblemCode.OUT_OF_RANGE,
            f"{path}.count",
            f"{action.count} signals are more than the {MAX_KEPT_SIGNALS} that a run keeps",
            "Wait for fewer at a time, in a loop.",
        )
    if action.HasField("timeout"):
        hint = "Leave it out to wait for ever."
        check_positive(report, f"{path}.timeout", action.timeout, hint)
