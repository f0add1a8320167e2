"""For all templates: values are never looked at again, and nothing but its own errors comes out."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from stepgraph_server.core import json_text
from stepgraph_server.core.templates import (
    ArgsTemplate,
    JsonTextValue,
    JsonTreeValue,
    RenderError,
    Template,
    TemplateError,
    TextValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.core.templates import Resolved

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
# Values and templates made of what a second pass would trip over.
TRICKY = st.lists(
    st.sampled_from(["{{", "}}", "{", "}", "{{{{", "{{a}}", "{{b.0?}}", "a", ".", "?", " ", "é"]),
    max_size=12,
).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TRICKY,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TRICKY, below, max_size=3),
    max_leaves=8,
)
RESOLVED = st.one_of(
    TRICKY.map(lambda text: TextValue(text=text)),
    VALUES.map(lambda tree: JsonTreeValue(tree=tree)),
    VALUES.map(lambda tree: JsonTextValue(text=json_text.dump(tree))),
)


class Variables:
    def __init__(self, values: dict[str, Resolved]) -> None:
        self.values = values

    def lookup(self, name: str) -> Resolved | None:
        return self.values.get(name)

    def names(self) -> Iterable[str]:
        return self.values


SCOPES = st.dictionaries(st.sampled_from(["a", "b", "b.0", "c"]), RESOLVED).map(Variables)


@given(TRICKY)
def test_a_value_is_never_expanded(value: str) -> None:
    scope = Variables({"a": TextValue(text=value), "b": TextValue(text="never")})
    assert Template.compile("[{{a}}]").render(scope, max_bytes=1_000) == f"[{value}]"
    assert ArgsTemplate.compile('["{{a}}","-{{a}}"]').render(scope, max_bytes=1_000) == [
        value,
        f"-{value}",
    ]


@given(TEXTS | TRICKY)
def test_any_text_can_be_written_as_a_template(text: str) -> None:
    # Two braces are doubled; a brace that is left over stays as it is.
    assert (
        Template.compile(text.replace("{{", "{{{{")).render(Variables({}), max_bytes=1_000) == text
    )


@given(VALUES)
def test_a_typed_value_is_put_in_as_it_is(value: object) -> None:
    scope = Variables({"a": JsonTextValue(text=json_text.dump(value))})
    assert ArgsTemplate.compile('{"x":"{{a}}"}').render(scope, max_bytes=10_000) == {"x": value}


@given(st.lists(st.sampled_from(["{{a}}", "{{b}}", "-", "{{{{"]), max_size=10), TRICKY, TRICKY)
def test_a_text_is_the_sum_of_its_parts(parts: list[str], a: str, b: str) -> None:
    scope = Variables({"a": TextValue(text=a), "b": TextValue(text=b)})
    filled = {"{{a}}": a, "{{b}}": b, "-": "-", "{{{{": "{{"}
    # A dash between parts, so that braces of neighbours do not read as one.
    text = Template.compile("-".join(parts)).render(scope, max_bytes=10_000)
    assert text == "-".join(filled[part] for part in parts)


@given(TRICKY, SCOPES, st.integers(0, 100))
def test_nothing_but_its_own_errors_comes_out(text: str, scope: Variables, max_bytes: int) -> None:
    with contextlib.suppress(TemplateError, RenderError):
        assert len(Template.compile(text).render(scope, max_bytes=max_bytes).encode()) <= max_bytes
    with contextlib.suppress(TemplateError, RenderError):
        value = ArgsTemplate.compile(json_text.dump({text: [text]})).render(
            scope, max_bytes=max_bytes
        )
        json_text.dump(value)


@given(st.integers(1, 50_000), st.sampled_from(["{{", "{{{", "}}", "{{a", "{{{{", "{{a.}}", "{ {"]))
def test_long_templates_take_linear_time(count: int, piece: str) -> None:
    with contextlib.suppress(TemplateError):
        Template.compile(piece * count)
