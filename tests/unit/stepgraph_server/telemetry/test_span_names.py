"""The attributes of spans, as constants and as their table."""

from __future__ import annotations

from stepgraph_server.telemetry import span_names
from tests.support import otlp_tables


def test_every_attribute_has_a_place_and_a_meaning():
    constants = {
        value
        for name, value in vars(span_names).items()
        if name.isupper() and isinstance(value, str)
    }
    assert constants == set(span_names.ATTRIBUTES)


def test_no_attribute_of_the_conventions_is_one_that_holds_payloads():
    payloads = {
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
    }
    assert not payloads & set(span_names.ATTRIBUTES)


def test_the_tables_of_the_documentation_are_those_of_the_code():
    """If not: `python -m tests.support.otlp_tables`."""
    page = otlp_tables.PAGE.read_text()
    assert otlp_tables.renewed(page) == page
