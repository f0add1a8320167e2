"""Names of tools as a provider takes them."""

from __future__ import annotations

from stepgraph.v1.llm_pb2 import LlmRequest
from stepgraph_client.providers.tool_names import MAX_CHARACTERS, ToolNames


def test_a_plain_name_stays_and_a_dotted_one_comes_back():
    """A name that providers take stays; one with dots is written otherwise and read back."""
    names = ToolNames(["search", "files.read"])
    assert [names.out("search"), names.out("files.read")] == ["search", "files_read"]
    assert [names.back("search"), names.back("files_read")] == ["search", "files.read"]


def test_two_names_never_become_one():
    """A name that is written otherwise avoids those that are there, also the longest."""
    given = ["a.b", "a_b", "a-b", "x." + "y" * 62, "x_" + "y" * 62]
    names = ToolNames(given)
    written = [names.out(each) for each in given]
    assert len(set(written)) == len(given)
    assert all(len(each) <= MAX_CHARACTERS for each in written)
    assert [names.back(each) for each in written] == given
    assert names.out("a.b") == "a_b_2"


def test_names_do_not_depend_on_their_order():
    """Each attempt sends the same names, in whatever order the tools stand."""
    given = ["a.b", "a_b", "a.b.c", "a.b_c"]
    one, other = ToolNames(given), ToolNames(reversed(given))
    assert [one.out(each) for each in given] == [other.out(each) for each in given]


def test_what_is_not_known_stays():
    """A tool that the model has made up is told by the name that it gave."""
    assert ToolNames([]).back("made_up") == "made_up"
    assert ToolNames([]).out("un.known") == "un.known"


def test_a_request_has_names_of_tools_and_of_calls_before():
    """A call of a tool that is offered no more has a name that the provider takes too."""
    request = LlmRequest(
        tools=[{"name": "files.read"}],
        messages=[
            {"content": [{"text": {"text": "x"}}]},
            {"content": [{"tool_call": {"name": "files_read"}}, {"tool_call": {"name": "b.c"}}]},
        ],
    )
    names = ToolNames.of(request)
    assert names.out("files.read") == "files_read_2"
    assert names.out("files_read") == "files_read"
    assert names.out("b.c") == "b_c"
