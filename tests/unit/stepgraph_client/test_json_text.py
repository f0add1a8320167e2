from __future__ import annotations

import pytest
from pydantic import BaseModel

from stepgraph_client.json_text import to_json_text


class City(BaseModel):
    name: str


def test_text_is_taken_as_it_is() -> None:
    assert to_json_text('{"a":1.0,  "b":9007199254740993}') == '{"a":1.0,  "b":9007199254740993}'


def test_objects_are_written_with_every_digit() -> None:
    assert (
        to_json_text({"n": 9007199254740993, "ü": [1.5]}) == '{"n": 9007199254740993, "ü": [1.5]}'
    )


def test_a_pydantic_model_stands_for_its_schema() -> None:
    assert '"required": ["name"]' in to_json_text(City)


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json_text({"n": float("nan")})
