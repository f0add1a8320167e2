"""Functions as tools: what models see of them, and how a call's arguments become theirs.

Rules: the signature is the schema. A model may send anything, so arguments are checked here, against the same types; what
does not fit is told to the model with the name of the field, and is not a failure.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_type_hints

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from stepgraph.v1 import llm_pb2
from stepgraph_client.json_text import JsonLike, to_json_text
from stepgraph_client.task_context import TaskContext
from stepgraph_client.task_errors import BadArguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Protocol

    class ReadArguments(Protocol):
        """Reads the arguments of a call."""

        def __call__(self, args: str) -> dict[str, object]:
            """Return the arguments by parameter. Raises BadArguments."""
            ...


MAX_REPORTED_ERRORS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function as a tool.

    Attributes:
        definition: What models see.
        read: Makes arguments of a call's JSON text.
        context_name: The parameter that takes the context; empty if none does.
    """

    definition: llm_pb2.ToolDefinition
    read: ReadArguments
    context_name: str


def tool_of(
    function: Callable[..., object],
    *,
    name: str = "",
    description: str = "",
    schema: JsonLike | None = None,
) -> Tool:
    """Make a tool of a function.

    Args:
        function: Its parameters are the arguments, but for one of type TaskContext, or named `ctx`.
        name: Another name than the function's.
        description: Another description than the docstring.
        schema: Another schema than that of the parameters. Then the function takes one argument, the object as it came.

    Raises:
        TypeError: The parameters can't be those of a tool.
    """
    name = name or getattr(function, "__name__", "")
    parameters, context_name = _parameters(function, name)
    if schema is not None:
        text = to_json_text(schema)
        read: ReadArguments = _raw_reader(text, parameters, name)
    else:
        model = _arguments_model(parameters, name)
        text = json.dumps(_schema_of(model), ensure_ascii=False, separators=(",", ":"))
        read = _typed_reader(model, [each.name for each in parameters])
    definition = llm_pb2.ToolDefinition(
        name=name, description=description or inspect.getdoc(function) or "", input_schema=text
    )
    return Tool(definition=definition, read=read, context_name=context_name)


def context_parameter(function: Callable[..., object]) -> str:
    """Return the name of the parameter that takes the context; empty if there is none."""
    hints = _hints(function)
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        if parameter.name == "ctx" or (inspect.isclass(hint) and issubclass(hint, TaskContext)):
            return parameter.name
    return ""


def _hints(function: Callable[..., object]) -> dict[str, object]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        message = (
            f"the type {error.name} of {function!r} is not known when it is declared: import it for real, "
            "not only for type checking"
        )
        raise TypeError(message) from error


def _parameters(function: Callable[..., object], name: str) -> tuple[list[inspect.Parameter], str]:
    hints = _hints(function)
    context_name = context_parameter(function)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == context_name:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            message = f"tool {name}: a model passes arguments by name, which {parameter} can't take"
            raise TypeError(message)
        if parameter.kind is parameter.VAR_KEYWORD:
            message = (
                f"tool {name}: {parameter} has no schema; name the parameters, or give a `schema`"
            )
            raise TypeError(message)
        parameters.append(parameter.replace(annotation=hints.get(parameter.name, object)))
    return parameters, context_name


def _arguments_model(parameters: list[inspect.Parameter], name: str) -> type[BaseModel]:
    # Fields have names of our own and the parameters' as aliases: a parameter may be called `schema` or `copy`, which are
    # methods of every model.
    fields = {f"field_{index}": _field(parameter) for index, parameter in enumerate(parameters)}
    make: Callable[..., type[BaseModel]] = create_model
    return make(f"{name}_arguments", __config__=ConfigDict(extra="forbid"), **fields)


def _field(parameter: inspect.Parameter) -> tuple[object, FieldInfo]:
    annotation = object if parameter.annotation is parameter.empty else parameter.annotation
    default = parameter.default
    if default is parameter.empty:
        return annotation, _info(Field(alias=parameter.name))
    if isinstance(default, FieldInfo):
        # `count: int = Field(3, description="...")` means in a function what it means in a model.
        default.alias = default.validation_alias = default.serialization_alias = parameter.name
        default._attributes_set |= {  # noqa: SLF001  # there is no other way to add to what was set
            "alias": parameter.name,
            "validation_alias": parameter.name,
            "serialization_alias": parameter.name,
        }
        return annotation, default
    return annotation, _info(Field(default, alias=parameter.name))


def _info(field: object) -> FieldInfo:
    assert isinstance(field, FieldInfo)  # `Field` is typed as whatever stands left of it
    return field


class _WithoutTitles(GenerateJsonSchema):
    """Titles repeat names; each of them would cost tokens in every call of a model."""

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False


def _schema_of(model: type[BaseModel]) -> Mapping[str, object]:
    schema = model.model_json_schema(schema_generator=_WithoutTitles)
    schema.pop("title", None)
    return schema


def _typed_reader(model: type[BaseModel], names: list[str]) -> ReadArguments:
    fields = [(name, f"field_{index}") for index, name in enumerate(names)]

    def read(args: str) -> dict[str, object]:
        try:
            given = model.model_validate_json(args or "{}")
        except ValidationError as error:
            raise BadArguments(_explain(error)) from None
        return {name: getattr(given, field) for name, field in fields}

    return read


def _explain(error: ValidationError) -> str:
    # Without the input: it may be long, and who sent it knows it.
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [
        f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}"
        for each in errors[:MAX_REPORTED_ERRORS]
    ]
    more = len(errors) - len(lines)
    return _bad("; ".join([*lines, f"and {more} more"] if more else lines))


def _bad(text: str) -> str:
    return f"bad arguments: {text}"


def _raw_reader(schema: str, parameters: list[inspect.Parameter], name: str) -> ReadArguments:
    if len(parameters) != 1:
        message = (
            f"tool {name}: with a `schema` of its own the function takes one argument, the object"
        )
        raise TypeError(message)
    validator = Draft202012Validator(json.loads(schema))
    (parameter,) = parameters

    def read(args: str) -> dict[str, object]:
        given = dict(_parsed(args))
        error = next(iter(validator.iter_errors(given)), None)
        if error is not None:
            place = ".".join(map(str, error.absolute_path)) or "arguments"
            raise BadArguments(_bad(f"{place}: {error.message[:300]}"))
        return {parameter.name: given}

    return read


def _parsed(args: str) -> Iterator[tuple[str, object]]:
    try:
        given = json.loads(args or "{}")
    except ValueError as error:
        raise BadArguments(_bad(f"they are not JSON: {error}")) from None
    if not isinstance(given, dict):
        raise BadArguments(_bad("they are not a JSON object"))
    yield from given.items()
