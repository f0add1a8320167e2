"""Functions as tools: the schema that models see, and what becomes of the arguments that they send."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from stepgraph_client.task_context import TaskContext  # noqa: TC001  # looked up by name
from stepgraph_client.task_errors import BadArguments
from stepgraph_client.tools import context_parameter, tool_of
from stepgraph_server.executors.tool_schemas import schema_problem


class Colour(Enum):
    RED = "red"


class Place(BaseModel):
    city: str
    zip: int | None = None


def search(query: str, limit: int = 10):
    """Search the archive.

    It is large.
    """


def rich(
    place: Place,
    colours: list[Colour],
    mode: Literal["a", "b"] = "a",
    ratio: Annotated[float, Field(description="How much.", ge=0, le=1)] = 0.5,
    count: int = Field(3, description="How many."),
    anything: Any = None,
    schema: str = "",
    copy: dict[str, int] | None = None,
    model_config: bool = False,
):
    pass


def schema_of(function, **options):
    tool = tool_of(function, **options)
    assert schema_problem(tool.definition.input_schema, of_arguments=True) == ""
    return json.loads(tool.definition.input_schema)


def bad(tool, args):
    with pytest.raises(BadArguments) as caught:
        tool.read(args)
    return str(caught.value)


class TestDefinitions:
    def test_name_description_and_schema_are_those_of_the_function(self):
        tool = tool_of(search)
        assert tool.definition.name == "search"
        assert tool.definition.description == "Search the archive.\n\nIt is large."
        assert json.loads(tool.definition.input_schema) == {
            "type": "object",
            "properties": {
                "query": {"type": "string"},
                "limit": {"type": "integer", "default": 10},
            },
            "required": ["query"],
            "additionalProperties": False,
        }

    def test_they_can_be_given(self):
        definition = tool_of(search, name="find", description="Finds.").definition
        assert (definition.name, definition.description) == ("find", "Finds.")
        assert not tool_of(lambda query: query, name="f").definition.description

    def test_the_schema_has_what_types_and_fields_say_and_no_titles(self):
        schema = schema_of(rich)
        properties = schema["properties"]
        assert set(properties) == {
            *("place", "colours", "mode", "ratio", "count"),
            *("anything", "schema", "copy", "model_config"),
        }
        assert properties["ratio"]["description"] == "How much."
        assert properties["ratio"]["maximum"] == 1
        assert properties["count"] == {"type": "integer", "default": 3, "description": "How many."}
        assert properties["mode"]["enum"] == ["a", "b"]
        assert schema["required"] == ["place", "colours"]
        assert "title" not in schema
        assert all("title" not in each for each in properties.values())

    def test_without_parameters_any_empty_object_will_do(self):
        def now():
            pass

        assert schema_of(now)["properties"] == {}
        assert tool_of(now).read("") == {}
        assert tool_of(now).read("{}") == {}

    def test_a_parameter_without_a_type_takes_anything(self):
        assert tool_of(lambda x: x, name="f").read('{"x": [1]}') == {"x": [1]}

    def test_the_same_function_has_the_same_schema_each_time(self):
        assert tool_of(rich).definition == tool_of(rich).definition

    def test_what_a_model_can_not_pass_is_refused_when_it_is_declared(self):
        def many(*args: int):
            pass

        def named(**more: int):
            pass

        def positional(x, /):
            pass

        for function in (many, named, positional):
            with pytest.raises(TypeError, match=function.__name__):
                tool_of(function)

    def test_a_type_that_can_not_be_looked_up_is_named(self):
        def f(x: Missing):  # noqa: F821
            pass

        with pytest.raises(TypeError, match="the type Missing of"):
            tool_of(f)

    def test_an_object_may_be_a_tool(self):
        class Adder:
            def __call__(self, a: int) -> int:
                """Adds one."""
                return a + 1

        tool = tool_of(Adder(), name="add_one")
        assert tool.read('{"a": 1}') == {"a": 1}


class TestContext:
    def test_a_parameter_of_that_type_or_name_is_no_argument(self):
        def by_type(query: str, task: TaskContext):
            pass

        def by_name(ctx, query: str):
            pass

        assert tool_of(by_type).context_name == "task"
        assert tool_of(by_name).context_name == "ctx"
        assert tool_of(search).context_name == ""
        assert set(schema_of(by_type)["properties"]) == {"query"}
        assert context_parameter(by_name) == "ctx"


class TestArguments:
    def test_they_have_the_types_of_the_parameters(self):
        args = tool_of(rich).read(
            '{"place": {"city": "Rome"}, "colours": ["red"], "schema": "s", "copy": {"a": 1}}'
        )
        assert args["place"] == Place(city="Rome")
        assert args["colours"] == [Colour.RED]
        assert args["schema"] == "s"
        assert args["copy"] == {"a": 1}
        assert args["count"] == 3
        assert args["ratio"] == 0.5

    def test_large_integers_are_exact(self):
        assert tool_of(lambda n: n, name="f").read('{"n": 9007199254740993}') == {
            "n": 9007199254740993
        }

        def typed(n: int):
            pass

        assert tool_of(typed).read('{"n": 9007199254740993}') == {"n": 9007199254740993}

    def test_what_does_not_fit_names_the_field_and_not_what_was_sent(self):
        tool = tool_of(rich)
        text = bad(tool, '{"place": {"city": 7777}, "colours": [], "ratio": 2}')
        assert text.startswith("bad arguments: ")
        assert "place.city: " in text
        assert "ratio: " in text
        assert "7777" not in text

    def test_missing_and_unknown_fields_are_named(self):
        assert "query: Field required" in bad(tool_of(search), "{}")
        assert "extra: " in bad(tool_of(search), '{"query": "", "extra": 1}')

    def test_what_is_no_object_is_told(self):
        for args in ("[]", "no json", "{", '"text"'):
            assert bad(tool_of(search), args).startswith("bad arguments: ")

    def test_of_many_faults_some_are_told(self):
        def wide(a: int, b: int, c: int, d: int, e: int, f: int, g: int):
            pass

        assert bad(tool_of(wide), "{}").endswith("; and 2 more")


class TestOwnSchema:
    SCHEMA = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'

    def test_it_is_what_models_see_and_the_function_takes_the_object(self):
        def raw(arguments: dict[str, object], ctx: TaskContext):
            pass

        tool = tool_of(raw, schema=self.SCHEMA)
        assert tool.definition.input_schema == self.SCHEMA
        assert tool.read('{"n": 1, "more": [2]}') == {"arguments": {"n": 1, "more": [2]}}
        assert tool.context_name == "ctx"

    def test_it_may_be_a_dictionary_or_a_model(self):
        tool = tool_of(lambda args: args, name="f", schema={"type": "object"})
        assert json.loads(tool.definition.input_schema) == {"type": "object"}
        tool = tool_of(lambda args: args, name="f", schema=Place)
        assert "city" in tool.definition.input_schema

    def test_arguments_are_checked_against_it(self):
        tool = tool_of(lambda args: args, name="f", schema=self.SCHEMA)
        assert "n: " in bad(tool, '{"n": "x"}')
        assert "'n' is a required property" in bad(tool, "{}")
        assert "not a JSON object" in bad(tool, "[]")
        assert "not JSON" in bad(tool, "{")

    def test_the_function_must_take_one_argument(self):
        with pytest.raises(TypeError, match="one argument"):
            tool_of(search, schema=self.SCHEMA)
