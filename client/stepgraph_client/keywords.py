"""What the functions of the builder are given, held against their own signatures.

Python drops what is misspelt in `**options`, and protobuf's words for a wrong type name neither the keyword nor the node. So
the builder's functions are `checked`: at the call, a name that there is not is answered with the one that was meant, and a
value of a wrong kind with what was expected.

Rules: the annotations are the only declaration; nothing is said twice. What a value means is for whoever takes it to check.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import FunctionType, NoneType, UnionType
from typing import (
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from google.protobuf.message import Message
from pydantic import BaseModel

from stepgraph.v1.edge_condition_pb2 import EdgeCondition
from stepgraph.v1.graph_pb2 import ContextWindow, NodeAction
from stepgraph.v1.interrupt_pb2 import InterruptAnswer, InterruptOptions
from stepgraph.v1.llm_pb2 import ToolChoice, ToolDefinition, ToolFilter
from stepgraph.v1.policy_pb2 import RetryPolicy, TaskLimits
from stepgraph_client import node_options

P = ParamSpec("P")
R = TypeVar("R")

#: How much of a wrong value an error shows.
_SHOWN_CHARACTERS = 40


class GraphBuildError(ValueError):
    """A graph can't be written down as it was asked for. Expected; the message says what to do."""


#: What annotations name that their modules import for type checkers only. A graph may be named in ways that only
#: `graph_ref` tells apart, so it looks for itself.
_NAMES: Mapping[str, object] = {
    **vars(node_options),
    "GraphSource": object,
    "Tools": bool | str | Sequence[str] | ToolFilter,
    "JsonLike": str | Mapping[str, object] | type[BaseModel],
    "Span": timedelta | str,
    "Mapping": Mapping,
    "Sequence": Sequence,
    **{
        each.__name__: each
        for each in (
            ContextWindow,
            EdgeCondition,
            InterruptAnswer,
            InterruptOptions,
            RetryPolicy,
            TaskLimits,
            ToolChoice,
            ToolDefinition,
        )
    },
}

#: How messages of the schema are made here, for those who wrote something else in their place.
_MADE_BY: Mapping[type[Message], str] = {
    ContextWindow: "context(…)",
    EdgeCondition: "a condition such as has_tool_calls() or otherwise()",
    InterruptAnswer: "an answer such as proceed() or abort(…)",
    InterruptOptions: "question(…)",
    NodeAction: "a NodeAction",
    RetryPolicy: "retry(…)",
    TaskLimits: "limits(…)",
    ToolChoice: "must_call(…) or must_not_call()",
    ToolDefinition: "a ToolDefinition",
    ToolFilter: "only(…) or everything_but(…)",
}

_WORDS: Mapping[object, str] = {
    bool: "True or False",
    bytes: "bytes",
    datetime: "a datetime",
    float: "a number",
    int: "a whole number",
    str: "text",
    timedelta: "a timedelta",
    NoneType: "None",
}


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function of the builder refuse names that it does not know, and values of a wrong kind."""
    signature = inspect.signature(function)
    subject = "Graph" if function.__name__ == "__init__" else function.__name__

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            # Python's own words for it are known to everybody.
            return function(*args, **kwargs)
        _check(_where(subject, bound.arguments), _hints_of(function), signature, bound.arguments)
        return function(*args, **kwargs)

    return call


def check_names(call: str, given: Iterable[str], declared: type) -> None:
    """Refuse keywords that a TypedDict does not declare.

    Raises:
        TypeError: There is one; as Python says it of a function without `**options`.
    """
    names: Mapping[str, object] = declared.__annotations__
    for name in given:
        if name not in names:
            raise TypeError(_unknown(call, name, names))


def closest(name: str, names: Iterable[str]) -> str:
    """Return "did you mean …?" for a name that there is not, or the list of those that there are."""
    known = list(names)
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"


@functools.cache
def _hints_of(declared: Any) -> dict[str, object]:  # noqa: ANN401  # whatever has annotations
    """Return the types of a function's parameters, or of a TypedDict's keys. Made once: a graph has thousands of nodes."""
    hints: dict[str, object] = get_type_hints(declared, localns=dict(_NAMES))
    return hints


def _where(subject: str, arguments: Mapping[str, object]) -> str:
    """Return the call as people find it in their program: `llm('think')`, `edge('a', 'b')`."""
    names = [arguments.get(name) for name in ("name", "node_id", "source", "target")]
    shown = ", ".join(repr(each) for each in names if isinstance(each, str))
    return f"{subject}({shown})"


def _check(
    where: str,
    hints: Mapping[str, object],
    signature: inspect.Signature,
    arguments: Mapping[str, object],
) -> None:
    for name, value in arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            assert isinstance(value, dict), "Python collects keywords in one"
            (declared,) = get_args(hints[name]) or (hints[name],)
            _check_options(where, _hints_of(declared), value, signature)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            assert isinstance(value, tuple), "Python collects arguments in one"
            for item in value:
                _check_variadic(where, name, hints[name], item)
        elif name in hints:
            _check_value(where, name, hints[name], value)


def _check_options(
    where: str,
    declared: Mapping[str, object],
    options: Mapping[str, object],
    signature: inspect.Signature,
) -> None:
    # Keywords that the function itself has may be what was meant as well.
    names = [
        *declared,
        *(
            each.name
            for each in signature.parameters.values()
            if each.name != "self" and each.kind is not inspect.Parameter.VAR_KEYWORD
        ),
    ]
    for name, value in options.items():
        if name not in declared:
            raise GraphBuildError(_unknown(where, name, names))
        _check_value(where, name, declared[name], value)


def _unknown(where: str, name: str, names: Iterable[str]) -> str:
    return f"{where} has no keyword {name!r}; {closest(name, names)}"


def _check_variadic(where: str, name: str, hint: object, item: object) -> None:
    if hint is str and isinstance(item, list | tuple):
        call = where.partition("(")[0]
        message = f"{call}: expected names, found {_shown(item)}; write {call}({', '.join(map(repr, item))})"
        raise GraphBuildError(message)
    _check_value(where, name, hint, item)


def _check_value(where: str, name: str, hint: object, value: object) -> None:
    if _fits(hint, value):
        return
    inner = _misfit_inside(hint, value)
    if inner is not None:
        key, of, item = inner
        _refuse(where, f"{name}[{key!r}]", of, item)
    _refuse(where, name, hint, value)


def _refuse(where: str, name: str, hint: object, value: object) -> None:
    message = f"{where}: {name} takes {_wanted(hint)}, not {_shown(value)}{_hint(hint, value)}"
    raise GraphBuildError(message)


def _misfit_inside(hint: object, value: object) -> tuple[object, object, object] | None:
    """Return the key, the type and the value of what makes a mapping or a list unfit, if it is only that."""
    for each in _variants(hint):
        origin, of = get_origin(each), get_args(each)
        if origin is Mapping and isinstance(value, Mapping):
            return next(
                ((key, of[1], item) for key, item in value.items() if not _fits(of[1], item)), None
            )
        if origin is Sequence and isinstance(value, list | tuple):
            found = enumerate(value)
            return next(((index, of[0], item) for index, item in found if not _fits(of[0], item)))
    return None


def _fits(hint: object, value: object) -> bool:
    origin, of = get_origin(hint), get_args(hint)
    if hint is object or hint is Any:
        return True
    if origin in {Union, UnionType}:
        return any(_fits(each, value) for each in of)
    if origin is Literal:
        return value in of
    if origin is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(of[0], key) and _fits(of[1], item) for key, item in value.items()
        )
    if origin is Sequence:
        # Text is a sequence of texts to Python, and to nobody who writes a graph.
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str | bytes)
            and all(_fits(of[0], item) for item in value)
        )
    return _is_a(origin or hint, of, value)


def _is_a(kind: object, of: tuple[object, ...], value: object) -> bool:
    if kind is type:
        return isinstance(value, type) and all(
            isinstance(base, type) and issubclass(value, base) for base in of
        )
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    assert isinstance(kind, type), f"the builder's annotations have nothing like {kind!r}"
    return isinstance(value, kind)


def _variants(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in {Union, UnionType} else (hint,)


def _wanted(hint: object) -> str:
    """Return in words what would have been right."""
    words: list[str] = []
    for each in _variants(hint):
        origin, of = get_origin(each), get_args(each)
        if origin is Literal:
            words.append(f"one of {', '.join(map(repr, of))}")
        elif origin is Mapping:
            words.append("a mapping")
        elif origin is Sequence:
            words.append(f"a list of {'texts' if of == (str,) else 'values'}")
        elif origin is type:
            words.append("a pydantic model")
        elif isinstance(each, type) and issubclass(each, Message):
            words.append(_MADE_BY.get(each, each.__name__))
        else:
            words.append(_WORDS.get(each, str(each)))
    if "a timedelta" in words and "text" in words:
        return 'a length of time such as "30s"'
    shown = [each for each in words if each != "None"]
    return " or ".join(shown)


def _hint(hint: object, value: object) -> str:
    """Return what was probably meant; empty if nothing is close."""
    if value is None:
        return "; leave it out"
    if not isinstance(value, str):
        return f"; write {str(value)!r}" if hint is str and _is_number(value) else ""
    for each in _variants(hint):
        if each is EdgeCondition:
            names = [name for name in EdgeCondition.DESCRIPTOR.fields_by_name if name != "custom"]
            close = difflib.get_close_matches(value.lower(), names, n=1, cutoff=0.6)
            return f"; write {close[0]}()" if close else f"; write custom({value!r})"
        if get_origin(each) is Literal:
            return f"; {closest(value, get_args(each))}"
        if get_origin(each) is Sequence and len(_variants(hint)) == 1:
            return f"; write [{value!r}]"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object) -> str:
    """Return in words what was given."""
    if isinstance(value, Message):
        return f"a {type(value).__name__}"
    if isinstance(value, FunctionType):
        return f"the function {value.__name__}; call it: {value.__name__}()"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
