"""Texts that mean something: names, templates, JSON, schemas, filters, and how large they are.

Rules: each function checks one field at the path that it is given, and takes the empty text for "not set" unless it says
otherwise. What compiles here is what the walk compiles again by the same functions, which keep it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepgraph_server.core import json_text
from stepgraph_server.core.json_text import JsonTextError
from stepgraph_server.core.names import (
    ID_PATTERN,
    RESERVED_TOOLS,
    RESERVED_VARIABLES,
    TEMPLATE_NAMES,
    VARIABLE_PATTERN,
    is_failure_code,
    is_id,
    is_reserved,
    is_variable,
)
from stepgraph_server.core.schema_shape import MAX_SCHEMA_BYTES, SchemaError
from stepgraph_server.core.schemas import compile_schema
from stepgraph_server.core.templates import ArgsTemplate, Template, TemplateError
from stepgraph_server.core.validation.codes import ProblemCode, WarningCode
from stepgraph_server.core.validation.report import at_key, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Sized

    from stepgraph.v1.llm_pb2 import ToolFilter
    from stepgraph_server.core.validation.report import Report

MAX_METADATA_ENTRIES: Final = 64
MAX_SELECTOR_ENTRIES: Final = 64
MAX_CODES: Final = 64

#: `input` is left out: a run's input is written to the variable of that name.
_SHADOWED: Final = frozenset(TEMPLATE_NAMES) - {"input"}


def check_id(report: Report, path: str, name: str, what: str) -> bool:
    """Check a name that must be set. Returns whether it is right."""
    if not name:
        report.problem(ProblemCode.REQUIRED, path, f"{what} must have a name")
    elif not is_id(name):
        report.problem(
            ProblemCode.NAME_INVALID,
            path,
            f"{shown(name)} is not a name of {what}",
            f"A name matches {ID_PATTERN}.",
        )
    else:
        return True
    return False


def check_variable(report: Report, path: str, name: str) -> bool:
    """Check the name of a variable that is read; it must be set. Returns whether it is right."""
    if is_variable(name):
        return True
    code = ProblemCode.NAME_INVALID if name else ProblemCode.REQUIRED
    message = f"{shown(name)} is not the name of a variable" if name else "a variable must be named"
    report.problem(code, path, message, f"A name matches {VARIABLE_PATTERN}.")
    return False


def check_written_variable(report: Report, path: str, name: str) -> None:
    """Check the name of a variable that the graph writes; it must be set."""
    if not check_variable(report, path, name):
        return
    if is_reserved(name):
        report.problem(
            ProblemCode.NAME_RESERVED,
            path,
            f"only the server writes {name}",
            f"Choose a name that does not begin with {', '.join(RESERVED_VARIABLES)}.",
        )
    elif name in _SHADOWED:
        report.warning(
            WarningCode.SHADOWED_NAME,
            path,
            f"{{{{{name}}}}} in a template is not this variable",
            "Choose another name.",
        )


def check_codes(report: Report, path: str, codes: Sequence[str]) -> None:
    """Check a list of failure codes."""
    check_count(report, path, codes, MAX_CODES)
    for index, code in enumerate(codes):
        if not is_failure_code(code):
            report.problem(
                ProblemCode.NAME_INVALID,
                f"{path}[{index}]",
                f"{shown(code)} is not a code of a failure",
                "A code is written like TOOL_ERROR.",
            )


def check_count(report: Report, path: str, entries: Sized, limit: int) -> None:
    """Check how many entries a list or map has."""
    if len(entries) > limit:
        report.problem(
            ProblemCode.TOO_MANY, path, f"has {len(entries)} entries, of at most {limit}"
        )


def check_size(report: Report, path: str, text: str, limit: int) -> bool:
    """Check how large a text is, in bytes of UTF-8. Returns whether it is small enough."""
    if len(text) * 4 <= limit or (size := len(text.encode())) <= limit:
        return True
    report.problem(ProblemCode.TOO_LARGE, path, f"has {size} bytes, of at most {limit}")
    return False


def check_labels(report: Report, path: str, labels: Mapping[str, str], limit: int) -> None:
    """Check metadata or a selector: how many entries there are, and that each has a name."""
    check_count(report, path, labels, limit)
    if "" in labels:
        report.problem(ProblemCode.REQUIRED, at_key(path, ""), "an entry must have a name")


def check_template(report: Report, path: str, text: str) -> Template | None:
    """Check a template. Returns it unless it is malformed."""
    try:
        return Template.compile(text)
    except TemplateError as error:
        _malformed(report, path, error)
        return None


def check_named_by_template(report: Report, path: str, text: str, what: str) -> None:
    """Check a template that gives a name, if there is one: without placeholders it must be a name already."""
    if not text or (template := check_template(report, path, text)) is None:
        return
    if not template.placeholders():
        check_id(report, path, "".join(map(str, template.parts)), what)


def check_args_template(report: Report, path: str, text: str, *, must_be_object: bool) -> None:
    """Check JSON text with templates in its strings."""
    try:
        root = ArgsTemplate.compile(text).root
    except TemplateError as error:
        _malformed(report, path, error)
        return
    # A single placeholder takes the type of its value, which only the run knows.
    if must_be_object and not isinstance(root, (dict, Template)):
        report.problem(ProblemCode.TEMPLATE_INVALID, path, "must be a JSON object")


def _malformed(report: Report, path: str, error: TemplateError) -> None:
    place = f" of {error.path}" if error.path else ""
    report.problem(
        ProblemCode.TEMPLATE_INVALID,
        path,
        f"{error.message}, at character {error.position + 1}{place}",
        "A placeholder is {{name}} or {{name?}}; two braces as they are are {{{{.",
    )


def check_json_object(report: Report, path: str, text: str) -> None:
    """Check the text of a JSON object, if there is one."""
    if not text:
        return
    try:
        value = json_text.parse(text)
    except JsonTextError as error:
        report.problem(ProblemCode.JSON_INVALID, path, str(error))
        return
    if not isinstance(value, dict):
        report.problem(ProblemCode.JSON_INVALID, path, "must be a JSON object")


def check_schema(report: Report, path: str, text: str) -> bool:
    """Check a JSON Schema, if there is one. Returns whether there is one that is right."""
    if not text or not check_size(report, path, text, MAX_SCHEMA_BYTES):
        return False
    try:
        compile_schema(text)
    except SchemaError as error:
        report.problem(
            ProblemCode.SCHEMA_INVALID,
            path,
            str(error),
            "Write a JSON Schema, draft 2020-12, without references to other documents.",
        )
        return False
    return True


def check_filter(report: Report, path: str, tools: ToolFilter) -> None:
    """Check the names and prefixes of a filter."""
    for field, patterns in (("allow", tools.allow), ("deny", tools.deny)):
        for index, pattern in enumerate(patterns):
            if pattern != "*" and not is_id(pattern.removesuffix("*")):
                report.problem(
                    ProblemCode.NAME_INVALID,
                    f"{path}.{field}[{index}]",
                    f"{shown(pattern)} is neither the name of a tool nor a prefix",
                    "Write an exact name, or a prefix that ends in *.",
                )


def check_tool_name(report: Report, path: str, name: str) -> None:
    """Check the name of a tool that somebody provides; it must be set."""
    if check_id(report, path, name, "a tool") and name in RESERVED_TOOLS:
        report.problem(
            ProblemCode.NAME_RESERVED,
            path,
            f"the tool {name} is the server's: a call of it is a decision",
            "Use a node Delegate or SwitchParadigm.",
        )
