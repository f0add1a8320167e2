"""Templates are filled in once, with the form that fits the place, and say what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from stepgraph_server.core import json_text, templates
from stepgraph_server.core.templates import (
    ArgsTemplate,
    BadPath,
    BadValue,
    JsonTextValue,
    JsonTreeValue,
    OutputTooLarge,
    RenderError,
    Template,
    TemplateError,
    TextValue,
    UnsetName,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepgraph_server.core.templates import Resolved

MAX_BYTES = 10_000


class Variables:
    """A scope over a dict."""

    def __init__(self, **values: Resolved) -> None:
        self.values: dict[str, Resolved] = dict(values)

    def lookup(self, name: str) -> Resolved | None:
        return self.values.get(name)

    def names(self) -> Iterable[str]:
        return self.values


SCOPE = Variables(
    name=TextValue(text="Bo"),
    trick=TextValue(text="{{name}} {{{{ }}"),
    user=JsonTextValue(text='{"id": 9007199254740993, "tags": ["a", {"x": 0.10}], "none": null}'),
    quoted=JsonTextValue(text=' "a\\"b" '),
    tree=JsonTreeValue(tree={"kind": "x", "list": [1, True]}),
    broken=JsonTextValue(text="{"),
    deep=JsonTextValue(text="[" * 64 + "]" * 64),
)
SCOPE.values["user.tags"] = TextValue(text="the longest name wins")
SCOPE.values["a.b"] = JsonTextValue(text='{"c":{"d":1}}')


def render(text: str) -> str:
    return Template.compile(text).render(SCOPE, max_bytes=MAX_BYTES)


def render_args(text: str) -> str:
    return json_text.dump(ArgsTemplate.compile(text).render(SCOPE, max_bytes=MAX_BYTES))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain } }} {", "plain } }} {"),
        ("Hi {{name}}!", "Hi Bo!"),
        ("{{ name }}{{\tname\n}}", "BoBo"),
        ("{{trick}}", "{{name}} {{{{ }}"),
        ("{{{{name}}", "{{name}}"),
        ("{{{{{{name}}", "{{Bo"),
        ("{{{{{{{{", "{{{{"),
        ("{{user}}", '{"id": 9007199254740993, "tags": ["a", {"x": 0.10}], "none": null}'),
        ("{{user.id}}", "9007199254740993"),
        ("{{user.none}}", "null"),
        ("{{user.tags}}", "the longest name wins"),
        ("{{a.b.c}} {{a.b.c.d}}", '{"d":1} 1'),
        ("{{quoted}}", 'a"b'),
        ("{{tree.kind}} {{tree.list}} {{tree.list.1}}", "x [1,true] true"),
        ("[{{nope?}}]", "[]"),
        ("[{{ nope.a.0? }}]", "[]"),
        ("{{name?}}", "Bo"),
        ("{{user.nope?}}{{user.none.x?}}{{tree.list.7?}}{{tree.list.x?}}", ""),
    ],
)
def test_text_is_filled_in(text: str, expected: str) -> None:
    assert render(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", "{}"),
        ('{"a":"{{name}}","b":1.50}', '{"a":"Bo","b":1.50}'),
        ('["{{user.id}}","id {{user.id}}"]', '[9007199254740993,"id 9007199254740993"]'),
        ('"{{user.none}}"', "null"),
        ('"{{tree}}"', '{"kind":"x","list":[1,true]}'),
        ('"{{quoted}}"', '"a\\"b"'),
        ('"{{trick}}"', '"{{name}} {{{{ }}"'),
        ('" {{user.id}}"', '" 9007199254740993"'),
        ('"{{nope?}}"', '""'),
        ('{"{{name}}":"{{{{"}', '{"{{name}}":"{{"}'),
        ('"\\u007b{name}}"', '"Bo"'),
    ],
)
def test_json_is_filled_in(text: str, expected: str) -> None:
    assert render_args(text) == expected


def test_a_number_that_is_put_in_keeps_its_spelling() -> None:
    scope = Variables(n=JsonTextValue(text='{"x":0.10}'))
    value = ArgsTemplate.compile('["{{n.x}}","{{n.x}}!"]').render(scope, max_bytes=100)
    assert json_text.dump(value) == '[0.10,"0.10!"]'


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("ab{{name", "never closed", 2),
        ("{{name}", "never closed", 0),
        ("a{{}}", "empty", 1),
        ("{{ ? }}", "empty", 0),
        ("{{items[0].price}}", "an item of a list is name.0", 0),
        ("{{a b}}", "{{{{ is a literal {{", 0),
        ("{{1a}}", "'1a' is not a name", 0),
        ("{{{name}}}", "'{name' is not a name", 0),
        ("{{a b}}", "is not a name", 0),
        ("{{name??}}", "is not a name", 0),
        ("{{é}}", "is not a name", 0),
        ("x{{" + "a" * 129 + "}}", "more than 128 characters", 1),
        ("{{" + "a." * 300 + "}}", "more than 512 characters", 0),
        ("{{a}}" * 1_001, "more than 1000 placeholders", 5_000),
        ("x" * 262_145, "more than 262144 characters", 0),
    ],
    ids=range(15),
)
def test_a_broken_template_says_where(text: str, message: str, position: int) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        Template.compile(text)
    assert caught.value.position == position
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "message", "position", "path"),
    [
        ('{"a":\n nope}', "not JSON: nope", 7, "$.a"),
        ('{"a":["x{{"]}', "never closed", 1, "$.a[0]"),
        ('"{{}}"', "empty", 0, "$"),
        ('{"a":1,"a":2}', "not JSON: the key", 7, "$.a"),
    ],
)
def test_broken_args_say_where(text: str, message: str, position: int, path: str) -> None:
    with pytest.raises(TemplateError, match=message) as caught:
        ArgsTemplate.compile(text)
    assert (caught.value.position, caught.value.path) == (position, path)


def test_an_unset_name_lists_what_exists() -> None:
    with pytest.raises(UnsetName) as caught:
        render("{{nope.x.0}}")
    error = caught.value
    assert (error.placeholder, error.name, error.known_count) == ("nope.x.0", "nope", 9)
    assert error.known[0] == "a.b"
    assert str(error) == error.message
    assert "there is a.b, broken, deep" in error.message
    assert error.code == "UNSET_NAME"


def test_at_most_twenty_names_are_listed() -> None:
    scope = Variables(**{f"v{n:03}": TextValue(text="") for n in range(100)})
    with pytest.raises(UnsetName, match="v019 and 80 more") as caught:
        Template.compile("{{x}}").render(scope, max_bytes=10)
    assert len(caught.value.known) == 20
    with pytest.raises(UnsetName, match="there is nothing"):
        Template.compile("{{x}}").render(Variables(), max_bytes=10)


@pytest.mark.parametrize(
    ("text", "segment", "found"),
    [
        ("{{name.x}}", "x", "a text"),
        ("{{name.x?}}", "x", "a text"),
        ("{{user.nope}}", "nope", "an object, which has id, none, tags"),
        ("{{user.id.x}}", "x", "a number or truth value"),
        ("{{user.none.x}}", "x", "null"),
        ("{{tree.list.2}}", "2", "a list of 2 items"),
        ("{{tree.list.x}}", "x", "a list of 2 items"),
        ("{{tree.list.1234567890}}", "1234567890", "a list of 2 items"),
        ("{{tree.list.-1}}", "-1", "a list of 2 items"),
        ("{{tree.}}", "", "an object, which has kind, list"),
    ],
)
def test_a_path_that_leads_nowhere_says_what_is_there(text: str, segment: str, found: str) -> None:
    with pytest.raises(BadPath) as caught:
        render(text)
    assert (caught.value.segment, caught.value.found) == (segment, found)


def test_a_value_that_is_not_json_fails_when_it_is_looked_at() -> None:
    assert render("{{broken}}") == "{"
    for template in ("{{broken.x}}", "{{broken.x?}}"):
        with pytest.raises(BadValue, match="broken"):
            render(template)
    with pytest.raises(BadValue, match="broken"):
        render_args('"{{broken}}"')
    with pytest.raises(BadValue, match="has no JSON text"):
        Template.compile("{{x}}").render(
            Variables(x=JsonTreeValue(tree=float("nan"))), max_bytes=100
        )


def test_output_is_bounded_in_bytes() -> None:
    template = Template.compile("é{{name}}")
    assert template.render(SCOPE, max_bytes=4) == "éBo"
    with pytest.raises(OutputTooLarge, match="more than 3 bytes"):
        template.render(SCOPE, max_bytes=3)
    args = ArgsTemplate.compile('["{{name}}","{{user.id}}"]')
    assert args.render(SCOPE, max_bytes=18) == ["Bo", 9007199254740993]
    with pytest.raises(OutputTooLarge):
        args.render(SCOPE, max_bytes=17)


def test_output_is_bounded_before_it_is_built() -> None:
    scope = Variables(big=TextValue(text="x" * 1_000_000))
    with pytest.raises(OutputTooLarge):
        Template.compile("{{big}}" * 1_000).render(scope, max_bytes=2_000_000)


def test_output_is_bounded_in_depth() -> None:
    assert json_text.parse(render_args('"{{deep}}"'))
    with pytest.raises(OutputTooLarge, match="too deeply"):
        render_args('["{{deep}}"]')
    with pytest.raises(OutputTooLarge, match="too deeply"):
        render_args('{"a":"{{deep}}"}')


def test_errors_share_a_root_with_a_code() -> None:
    codes = {error.code for error in (UnsetName, BadPath, BadValue, OutputTooLarge)}
    assert len(codes) == 4
    assert all(issubclass(e, RenderError) for e in (UnsetName, BadPath, BadValue, OutputTooLarge))


def test_names_are_listed_as_written() -> None:
    assert Template.compile("{{a.b}} {{c?}} {{{{d").names() == {"a.b", "c"}
    assert ArgsTemplate.compile('{"{{k}}":["{{a}}",{"x":"-{{b.0}}","y":1}]}').names() == {
        "a",
        "b.0",
    }
    assert [p.position for p in Template.compile("x{{a}}{{b?}}").placeholders()] == [1, 6]


def test_small_templates_are_compiled_once() -> None:
    assert Template.compile("{{a}}") is Template.compile("{{a}}")
    assert ArgsTemplate.compile('"{{a}}"') is ArgsTemplate.compile('"{{a}}"')
    large = "x" * (templates._MAX_CACHED_CHARACTERS + 1)
    assert Template.compile(large) is not Template.compile(large)
    assert ArgsTemplate.compile(f'"{large}"').root == large


def test_look_ups_are_bounded() -> None:
    asked: list[str] = []

    class Asked(Variables):
        def lookup(self, name: str) -> Resolved | None:
            asked.append(name)
            return None

    name = "a" + ".a" * 250
    with pytest.raises(UnsetName):
        Template.compile(f"{{{{{name}}}}}").render(Asked(), max_bytes=10)
    assert max(map(len, asked)) <= 128
    assert len(asked) <= 64
