"""What an expression reads: taken out of its bindings, made what the CEL library takes, and measured.

Rules: only what is named is looked at, one value after the other, and no more once the values are too large together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, cast

from stepgraph_server.core.expression_cost import COST_BUDGET, NODE_SIZE
from stepgraph_server.core.expression_errors import ExpressionCode, ExpressionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepgraph_server.core.expression_names import Names

_LARGEST_INPUT: Final = COST_BUDGET // 3
_MAX_INPUT_DEPTH: Final = 128
_INT64: Final = 1 << 63

Key: TypeAlias = "tuple[str, str | None]"
Measures: TypeAlias = "dict[Key, tuple[int, int]]"
"""By root, and by name of a variable, the size and the width of what was converted."""


def dotted(key: Key) -> str:
    """Return how an expression writes a root, or a variable."""
    root, variable = key
    return root if variable is None else f"{root}.{variable}"


def bind(
    source: str, names: Names, bindings: Mapping[str, object]
) -> tuple[dict[str, object], Measures, int]:
    """Take what an expression names out of its bindings: as the library takes it, and how large it is."""
    binding = _Binding(source, names)
    for root in names.root_order:
        if root not in bindings:
            raise ExpressionError(
                code=ExpressionCode.UNKNOWN_NAME,
                message=f"{root} has no value here",
                expression=source,
                name=root,
                known=bindings,
            )
        if root == "vars":
            binding.add_variables(cast("Mapping[str, object]", bindings[root]))
        else:
            binding.data[root] = binding.add((root, None), bindings[root])
    return binding.data, binding.measures, binding.total_size


class _Binding:
    """Collects the converted values of one evaluation, and how large they are."""

    def __init__(self, source: str, names: Names) -> None:
        self._source = source
        self._names = names
        self.data: dict[str, object] = {}
        self.measures: Measures = {}
        self.total_size = 0

    def add_variables(self, variables: Mapping[str, object]) -> None:
        names = self._names.variable_order
        bound: dict[str, object] = {}
        for name in sorted(variables) if names is None else names:
            if name in variables:
                bound[name] = self.add(("vars", name), variables[name])
        if names is None:
            size = self.total_size + sum(NODE_SIZE + 4 * len(name) for name in bound)
            widths = [width for _, width in self.measures.values()]
            self.measures["vars", None] = (size, max([len(bound), *widths]))
        self.data["vars"] = bound

    def add(self, key: Key, value: object) -> object:
        """Convert a value and note what it measures."""
        size, width = NODE_SIZE, 0
        if value is not None and type(value) is not bool:
            converter = _Converter()
            try:
                value = converter.convert(value, _MAX_INPUT_DEPTH)
            except _UnfitError as unfit:
                name = dotted(key)
                message = f"{name} {unfit.reason}"
                raise ExpressionError(
                    code=unfit.code, message=message, expression=self._source, name=name
                ) from None
            size, width = converter.size, converter.width
        self.measures[key] = (size, width)
        self.total_size += size
        if self.total_size > _LARGEST_INPUT:
            # Asked after each value: what comes after is not even read.
            raise ExpressionError(
                code=ExpressionCode.COST,
                message="the values that it names are too large together",
                expression=self._source,
                name=dotted(key),
            )
        return value


class _UnfitError(Exception):
    """A value that CEL can't take. It stays in this file."""

    def __init__(self, *, code: ExpressionCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Converter:
    """Makes a JSON value what the library takes, which knows exact types only, and adds up its size."""

    def __init__(self) -> None:
        self.size = 0
        self.width = 0

    def convert(self, value: object, depth: int) -> object:
        """Convert a value that may be `depth` levels deep."""
        self.size += NODE_SIZE
        if type(value) is str:
            return self._text(value)
        if type(value) is int:
            if -_INT64 <= value < _INT64:
                return value
            reason = "holds an integer beyond 64 bits"
            raise _UnfitError(code=ExpressionCode.OVERFLOW, reason=reason)
        if value is None or type(value) is bool:
            return value
        if isinstance(value, float):
            return float(value)
        if isinstance(value, dict):
            self._enter(len(value), depth)
            return {self._text(key): self.convert(item, depth - 1) for key, item in value.items()}
        if isinstance(value, list):
            self._enter(len(value), depth)
            return [self.convert(item, depth - 1) for item in value]
        reason = f"holds a {type(value).__name__}, which is not JSON"
        raise _UnfitError(code=ExpressionCode.TYPE, reason=reason)

    def _text(self, text: object) -> str:
        if not isinstance(text, str):
            raise _UnfitError(code=ExpressionCode.TYPE, reason="has a key that is not text")
        if "\0" in text:
            # The library takes it for the end of the text, and would compare what is before it only.
            reason = "holds a text with a NUL character"
            raise _UnfitError(code=ExpressionCode.TYPE, reason=reason)
        self.size += len(text) if text.isascii() else 4 * len(text)
        return text

    def _enter(self, length: int, depth: int) -> None:
        self.width = max(self.width, length)
        if depth <= 0 or self.size + NODE_SIZE * length > _LARGEST_INPUT:
            reason = "is too large or too deep for an expression"
            raise _UnfitError(code=ExpressionCode.COST, reason=reason)


__all__ = ["Key", "Measures", "bind", "dotted"]
