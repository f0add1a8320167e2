r"""Regular expressions of JSON Schemas.

Rules: a pattern comes from a stranger and is tried on a stranger's text, so its time must be linear in the text whatever
it says. Python's `re` backtracks: `(a+)+$` takes it years. The engine used here can't backtrack (it is Rust's `regex`,
which pydantic brings along), and so has no look-around and no back-references; patterns that have them are refused when
the schema is compiled. `\d`, `\w` and `\s` mean what Unicode says.
"""

from __future__ import annotations

from typing import Final

from pydantic_core import SchemaError as PatternSyntaxError
from pydantic_core import SchemaValidator, core_schema

MAX_PATTERN_CHARACTERS: Final = 512

# Compiling takes up to 50 ms, for `\w{100}`; an engine is never larger than 10 MiB, which is its own limit.


class Pattern:
    """A compiled pattern."""

    __slots__ = ("_engine",)

    def __init__(self, text: str) -> None:
        """Compile a pattern.

        Raises:
            ValueError: It is too long, too large once compiled, or uses what there is not; the message says so.
        """
        if len(text) > MAX_PATTERN_CHARACTERS:
            message = f"the pattern has {len(text)} characters, of at most {MAX_PATTERN_CHARACTERS}"
            raise ValueError(message)
        try:
            self._engine = SchemaValidator(
                core_schema.str_schema(pattern=text, regex_engine="rust-regex")
            )
        except PatternSyntaxError as error:
            # The engine shows the pattern over several lines; its last line says what is wrong.
            reason = str(error).strip().splitlines()[-1].strip().removeprefix("error: ")
            message = f"the pattern can't be used: {reason[:200]}"
            raise ValueError(message) from None

    def occurs_in(self, text: str) -> bool:
        """Whether some part of `text` matches."""
        return self._engine.isinstance_python(text)
