from __future__ import annotations

from itertools import count

import pytest

from stepgraph.v1 import graph_pb2, value_pb2
from stepgraph_server.core import json_text
from stepgraph_server.core.reducers import ReducerError, reduce

APPEND = graph_pb2.REDUCER_APPEND
SUM = graph_pb2.REDUCER_SUM
MIN = graph_pb2.REDUCER_MIN
MAX = graph_pb2.REDUCER_MAX
MERGE = graph_pb2.REDUCER_MERGE
BLOB = value_pb2.Value(blob=value_pb2.Blob(data=b"x"))


def json(text: str) -> value_pb2.Value:
    return value_pb2.Value(json=text)


def text(content: str) -> value_pb2.Value:
    return value_pb2.Value(text=content)


def reduced(reducer: int, base: str | None, write: str) -> str:
    result = reduce(reducer, None if base is None else json(base), json(write))
    assert result.HasField("json")
    return result.json


@pytest.mark.parametrize(
    "reducer", [graph_pb2.REDUCER_REPLACE, graph_pb2.REDUCER_SINGLE, graph_pb2.REDUCER_UNSPECIFIED]
)
def test_a_write_replaces(reducer: int) -> None:
    for write in (text("new"), BLOB, json("1")):
        assert reduce(reducer, json("[1]"), write) is write


class TestAppend:
    @pytest.mark.parametrize(
        ("base", "write", "expected"),
        [
            (None, "[1]", "[1]"),
            (None, "1", "[1]"),
            ("[]", "1", "[1]"),
            ("[]", "[]", "[]"),
            ("[1]", "[]", "[1]"),
            ("[ ]", "[2]", "[2]"),
            ("[1]", "[2, 3]", "[1,2, 3]"),
            ("[1]", "[[2]]", "[1,[2]]"),
            ("[1]", '{"a": 1}', '[1,{"a": 1}]'),
            ("[1]", "null", "[1,null]"),
            ('["]"]', '"["', '["]","["]'),
            (" [1 ] \n", " 2 ", "[1,2]"),
        ],
    )
    def test_a_list_extends_and_anything_else_is_an_item(
        self, base: str | None, write: str, expected: str
    ) -> None:
        assert reduced(APPEND, base, write) == expected

    def test_numbers_keep_their_spelling(self) -> None:
        result = reduced(APPEND, "[9007199254740993, 1.0, 0.10]", "[1e308, -0]")
        assert result == "[9007199254740993, 1.0, 0.10,1e308, -0]"

    def test_text_is_an_item(self) -> None:
        assert reduce(APPEND, None, text('say "hi"')).json == '["say \\"hi\\""]'
        assert reduce(APPEND, json("[1]"), text("[2]")).json == '[1,"[2]"]'

    @pytest.mark.parametrize(
        "base",
        [text("a"), json("{}"), json("3"), json('"[]"'), BLOB],
        ids=count(),
    )
    def test_what_holds_no_list_can_not_be_appended_to(self, base: value_pb2.Value) -> None:
        with pytest.raises(ReducerError, match="not a JSON list"):
            reduce(APPEND, base, json("[1]"))

    @pytest.mark.parametrize(
        "write",
        [BLOB, value_pb2.Value()],
        ids=count(),
    )
    def test_what_has_no_json_can_not_be_an_item(self, write: value_pb2.Value) -> None:
        with pytest.raises(ReducerError, match="can't be an item"):
            reduce(APPEND, json("[1]"), write)

    def test_an_item_may_not_make_the_list_too_deep(self) -> None:
        deepest = "[" * (json_text.MAX_DEPTH - 1) + "]" * (json_text.MAX_DEPTH - 1)
        item = '{"a":' + deepest + "}"
        with pytest.raises(ReducerError, match="deeper"):
            reduced(APPEND, "[1]", item)
        json_text.parse(reduced(APPEND, "[1]", '{"a":' + deepest[1:-1] + "}"))

    def test_many_brackets_are_not_depth(self) -> None:
        assert reduced(APPEND, "[]", '"' + "[" * 100 + '"') == '["' + "[" * 100 + '"]'


class TestSum:
    @pytest.mark.parametrize(
        ("base", "write", "expected"),
        [
            (None, "1.50", "1.50"),
            ("1", "2", "3"),
            ("9007199254740993", "1", "9007199254740994"),
            ("1" + "0" * 400, "1", "1" + "0" * 399 + "1"),
            ("1", "2.0", "3.0"),
            ("0.1", "0.2", "0.30000000000000004"),
            ("0.10", "1", "1.1"),
        ],
    )
    def test_numbers_are_added(self, base: str | None, write: str, expected: str) -> None:
        assert reduced(SUM, base, write) == expected

    @pytest.mark.parametrize(
        ("base", "write"), [("1e308", "1e308"), ("-1e308", "-1e308"), ("1" + "0" * 400, "0.5")]
    )
    def test_a_sum_that_no_double_holds_is_an_error(self, base: str, write: str) -> None:
        with pytest.raises(ReducerError, match="range of a double"):
            reduced(SUM, base, write)

    def test_a_sum_that_is_too_long_to_be_written_is_an_error(self) -> None:
        longest = "9" * json_text.MAX_NUMBER_CHARACTERS
        with pytest.raises(ReducerError, match="characters"):
            reduced(SUM, longest, longest)


class TestMinAndMax:
    @pytest.mark.parametrize(
        ("base", "write", "least", "greatest"),
        [
            (None, "3", "3", "3"),
            ("1", "2", "1", "2"),
            ("2", "1", "1", "2"),
            ("3", "3.0", "3", "3"),
            ("3.0", "3", "3.0", "3.0"),
            ("9007199254740993", "9007199254740992.0", "9007199254740992.0", "9007199254740993"),
            ("-0.10", "0.10", "-0.10", "0.10"),
        ],
    )
    def test_the_number_is_kept_as_it_was_spelled(
        self, base: str | None, write: str, least: str, greatest: str
    ) -> None:
        assert reduced(MIN, base, write) == least
        assert reduced(MAX, base, write) == greatest


class TestMerge:
    @pytest.mark.parametrize(
        ("base", "write", "expected"),
        [
            (None, '{"a": 1}', '{"a": 1}'),
            ('{"a": 1.0}', '{"b": 2}', '{"a":1.0,"b":2}'),
            ('{"a":1,"b":1}', '{"a":0.10}', '{"a":0.10,"b":1}'),
            ('{"a":{"x":1}}', '{"a":{"y":2}}', '{"a":{"y":2}}'),
            ('{"a":1}', "{}", '{"a":1}'),
            ('{"a":1}', '{"a":null}', '{"a":null}'),
        ],
    )
    def test_objects_are_merged_by_key(self, base: str | None, write: str, expected: str) -> None:
        assert reduced(MERGE, base, write) == expected


class TestMisfits:
    @pytest.mark.parametrize("reducer", [SUM, MIN, MAX, MERGE])
    @pytest.mark.parametrize(
        ("wrong", "kind"),
        [
            (text("3"), "a text value"),
            (BLOB, "a blob value"),
            (value_pb2.Value(), "the empty value"),
            (json("true"), "JSON true"),
            (json("null"), "JSON null"),
            (json('"3"'), "a JSON string"),
            (json("[1]"), "a JSON list"),
        ],
        ids=count(),
    )
    def test_other_types_are_errors_on_both_sides(
        self, reducer: int, wrong: value_pb2.Value, kind: str
    ) -> None:
        right = json("{}") if reducer == MERGE else json("1")
        for base, write in ((wrong, right), (right, wrong), (None, wrong)):
            with pytest.raises(ReducerError, match=kind):
                reduce(reducer, base, write)

    def test_numbers_are_no_objects_and_objects_no_numbers(self) -> None:
        with pytest.raises(ReducerError, match="a JSON number is not a JSON object"):
            reduced(MERGE, "{}", "1")
        with pytest.raises(ReducerError, match="a JSON object is not a JSON number"):
            reduced(SUM, "1", "{}")

    def test_the_error_names_variable_and_reducer(self) -> None:
        with pytest.raises(ReducerError) as caught:
            reduce(SUM, None, text("x"), variable="count")
        error = caught.value
        assert (error.variable, error.reducer) == ("count", "SUM")
        assert str(error) == "count (SUM): a text value is not a JSON number"

    def test_a_result_may_not_be_too_large(self) -> None:
        with pytest.raises(ReducerError, match="it would have 14 bytes, of at most 13"):
            reduce(APPEND, json('["abc"]'), text("éé"), max_bytes=13)
        reduce(APPEND, json('["abc"]'), text("éé"), max_bytes=14)

    def test_json_that_never_passed_a_check_is_an_error(self) -> None:
        with pytest.raises(ReducerError, match="not JSON"):
            reduced(SUM, "1", "one")
