"""Tools that the graph itself answers: that somebody does, and only one, and that it can.

Rules: a tool is answered by the node that says so, or performed by a graph. What a node does with a call must fit: it has one input and
one result, and no calls of its own to carry out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepgraph_server.core.validation.actions import check_reference
from stepgraph_server.core.validation.codes import ProblemCode
from stepgraph_server.core.validation.report import shown

if TYPE_CHECKING:
    from stepgraph.v1.graph_pb2 import GraphTool, NodeAction
    from stepgraph_server.core.validation.outline import Outline
    from stepgraph_server.core.validation.report import Report


def check_graph_tool(report: Report, path: str, tool: GraphTool, outline: Outline) -> None:
    """Check who answers a tool."""
    name = tool.definition.name
    if not tool.HasField("graph"):
        if name and not any(node.answers == name for node in outline.definition.nodes):
            report.problem(
                ProblemCode.TOOL_UNANSWERED,
                path,
                f"no node answers {shown(name)}, and no graph performs it",
                f"Let a node say answers: {name}, or name a graph.",
            )
        return
    check_reference(report, f"{path}.graph", tool.graph)


def check_answers(report: Report, number: int, outline: Outline) -> None:
    """Check the tool that a node answers."""
    definition = outline.definition
    node, path = definition.nodes[number], f"{outline.node_path(number)}.answers"
    tools = {tool.definition.name: tool for tool in definition.tools}
    tool = tools.get(node.answers)
    if tool is None:
        message = f"the graph has no tool {shown(node.answers)}"
        hint = report.closest(node.answers, tools.keys()) or "List it under tools."
        report.problem(ProblemCode.UNKNOWN_TOOL, path, message, hint)
        return
    others = [
        place
        for place, each in enumerate(definition.nodes[:number])
        if each.answers == node.answers
    ]
    if others or tool.HasField("graph"):
        who = shown(definition.nodes[others[0]].id) if others else "a graph"
        message = f"{who} answers {shown(node.answers)} already"
        report.problem(ProblemCode.TOOL_ANSWERED_TWICE, path, message, "Leave it to one of them.")
    problem = _problem_with(node.action)
    if problem is not None:
        report.problem(ProblemCode.ACTION_NOT_ALLOWED, path, *problem)


def _problem_with(action: NodeAction) -> tuple[str, str] | None:
    """Return why an action can't answer a call, and what to do; None if it can."""
    match action.WhichOneof("kind"):
        case "run_requested_tools":
            return (
                "a RunRequestedTools performs calls and answers none",
                "Let another node answer, to which an edge leads.",
            )
        case "llm_infer" if action.llm_infer.include_tool_definitions:
            return (
                "its own calls would have no place in the conversation",
                "Leave include_tool_definitions out, or let a graph perform the tool.",
            )
        case "tool_call" if not action.tool_call.HasField("args_template"):
            return (
                "without an args_template it performs a call of its tool and not this one",
                'Give it an args_template, such as {"x": "{{input.x}}"}.',
            )
        case "delegate" if not action.delegate.HasField("task_template"):
            return (
                "without a task_template it carries a delegation out and not this call",
                "Give it a task_template, such as {{input.task}}.",
            )
        case "switch_paradigm" if not action.switch_paradigm.paradigm:
            return (
                "without a paradigm it carries a switch out and not this call",
                "Name the paradigm.",
            )
        case _:
            return None


__all__ = ["check_answers", "check_graph_tool"]
