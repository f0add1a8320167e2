"""Messages as OpenAI's API has them."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2 as conv
from stepgraph.v1.llm_pb2 import LlmRequest
from stepgraph.v1.value_pb2 import VALUE_FORM_BLOB, VALUE_FORM_TEXT, StoredValue
from stepgraph_client.providers.echoes import packed
from stepgraph_client.providers.openai_dialect import Dialect
from stepgraph_client.providers.openai_messages import Messages
from stepgraph_client.providers.tool_names import ToolNames
from stepgraph_client.task_errors import Failed
from tests.support.provider_context import Attempt

PNG = {"blob": {"media_type": "image/png", "data": b"png"}}
PNG_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}


async def written(*messages, attempt=None, system="", **dialect):
    """The messages of a request."""
    request = LlmRequest(messages=messages, system_prompt=system)
    ctx = (attempt or Attempt()).ctx
    return await Messages(ctx, ToolNames.of(request), Dialect(**dialect)).of(request)


def user(*blocks):
    return conv.Message(role=conv.ROLE_USER, content=blocks)


def assistant(*blocks):
    return conv.Message(role=conv.ROLE_ASSISTANT, content=blocks)


def tool(*results):
    blocks = [conv.ContentBlock(tool_result=each) for each in results]
    return conv.Message(role=conv.ROLE_TOOL, content=blocks)


def text(said):
    return conv.ContentBlock(text={"text": said})


async def test_the_system_prompt_comes_first():
    """The system prompt is the first message; messages of the system's own stay where they are."""
    system = conv.Message(role=conv.ROLE_SYSTEM, content=[text("more")])
    assert await written(user(text("hi")), system, system="be good") == [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "more"},
    ]


async def test_a_message_of_text_is_one_text():
    """Text stays text, since not every server takes parts; an empty message is empty."""
    assert await written(user(text("a"), text("b")), user()) == [
        {"role": "user", "content": "a\n\nb"},
        {"role": "user", "content": ""},
    ]


async def test_stored_text_is_read():
    """Text that is stored is sent whole."""
    attempt = Attempt()
    attempt.values.contents["d"] = b"long"
    block = conv.ContentBlock(text={"stored": StoredValue(digest="d", form=VALUE_FORM_TEXT)})
    assert await written(user(block), attempt=attempt) == [{"role": "user", "content": "long"}]


async def test_pictures_are_data_urls_or_links():
    """A picture goes inside the request, stored or not; a location is left for the provider to fetch."""
    attempt = Attempt()
    attempt.values.contents["d"] = b"png"
    stored = StoredValue(digest="d", form=VALUE_FORM_BLOB, media_type="image/png")
    blocks = [
        text("look"),
        conv.ContentBlock(image=PNG),
        conv.ContentBlock(image={"stored": stored}),
        conv.ContentBlock(image={"uri": "https://example.com/a.png"}),
    ]
    (entry,) = await written(user(*blocks), attempt=attempt)
    link = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert entry["content"] == [{"type": "text", "text": "look"}, PNG_PART, PNG_PART, link]


async def test_documents_are_text_or_files():
    """A document of text is text with its name; any other is a file."""
    blocks = [
        conv.ContentBlock(
            file={"blob": {"media_type": "text/csv", "data": b"a,b"}, "name": "t.csv"}
        ),
        conv.ContentBlock(file={"blob": {"media_type": "application/json", "data": b"{}"}}),
        conv.ContentBlock(
            file={"blob": {"media_type": "application/pdf", "data": b"p"}, "name": "p.pdf"}
        ),
    ]
    (entry,) = await written(user(*blocks))
    assert entry["content"] == [
        {"type": "text", "text": "t.csv:\na,b"},
        {"type": "text", "text": "{}"},
        {
            "type": "file",
            "file": {"filename": "p.pdf", "file_data": "data:application/pdf;base64,cA=="},
        },
    ]


async def test_calls_go_back_as_the_model_made_them():
    """Ids of the provider go back unchanged, even the same twice; a call without one has the server's. So do numbers and extras."""
    extra = packed("openai", {"extra_content": {"sig": "s"}})
    calls = [
        {"id": "call_1_1_0", "name": "add.up", "args": '{"n": 1.0}', "provider_id": "x"},
        {"id": "call_1_1_1", "name": "add", "args": "", "provider_id": "x", "provider_data": extra},
        {"id": "call_1_1_2", "name": "add", "args": "nonsense"},
    ]
    entries = await written(
        assistant(text("so"), *(conv.ContentBlock(tool_call=each) for each in calls)),
        tool({"call_id": "call_1_1_0", "provider_id": "x", "content": [text("1")]}),
        tool(
            {"call_id": "call_1_1_1", "provider_id": "x", "content": [text("2"), text("3")]},
            {"call_id": "call_1_1_2", "content": [text("bad")], "is_error": True},
        ),
    )

    def written_call(call_id, name, arguments, **more):
        function = {"name": name, "arguments": arguments}
        return {**more, "id": call_id, "type": "function", "function": function}

    assert entries == [
        {
            "role": "assistant",
            "content": "so",
            "tool_calls": [
                written_call("x", "add_up", '{"n": 1.0}'),
                written_call("x", "add", "{}", extra_content={"sig": "s"}),
                written_call("call_1_1_2", "add", '{"unreadable_arguments": "nonsense"}'),
            ],
        },
        {"role": "tool", "tool_call_id": "x", "content": "1"},
        {"role": "tool", "tool_call_id": "x", "content": "2\n3"},
        {"role": "tool", "tool_call_id": "call_1_1_2", "content": "Error: bad"},
    ]


async def test_what_another_provider_left_stays_behind():
    """Data of another provider's, and its thoughts, are not sent."""
    call = {"name": "a", "id": "c", "provider_data": packed("anthropic", {"id": "bad"})}
    thought = conv.ContentBlock(thinking={"text": "hm", "provider_data": b"\xff"})
    (entry,) = await written(assistant(thought, conv.ContentBlock(tool_call=call)))
    assert entry["tool_calls"][0]["id"] == "c"
    assert entry["content"] is None
    assert "reasoning_content" not in entry


async def test_thoughts_go_back_to_a_server_that_wants_them():
    """Where the dialect says so, thoughts are sent as `reasoning_content`."""
    thought = conv.ContentBlock(thinking={"text": "hm"})
    said = await written(assistant(thought, text("so")), assistant(text("a")), sends_thinking=True)
    assert said == [
        {"role": "assistant", "content": "so", "reasoning_content": "hm"},
        {"role": "assistant", "content": "a"},
    ]


async def test_pictures_of_results_follow_after_the_last_result():
    """A result can only be text: its pictures come in a message after all results of the reply, and the text says so."""
    picture = conv.ContentBlock(image=PNG)
    entries = await written(
        tool({"call_id": "a", "content": [text("one"), picture]}),
        tool({"call_id": "b", "content": [picture]}),
        user(text("next")),
        tool({"call_id": "c", "content": [picture]}),
    )
    assert entries == [
        {
            "role": "tool",
            "tool_call_id": "a",
            "content": "one\n[picture 1 of this result follows below]",
        },
        {
            "role": "tool",
            "tool_call_id": "b",
            "content": "[picture 2 of this result follows below]",
        },
        {"role": "user", "content": [PNG_PART, PNG_PART]},
        {"role": "user", "content": "next"},
        {
            "role": "tool",
            "tool_call_id": "c",
            "content": "[picture 1 of this result follows below]",
        },
        {"role": "user", "content": [PNG_PART]},
    ]


LINK = conv.ContentBlock(file={"uri": "https://example.com/a.pdf"})
CALL = conv.ContentBlock(tool_call={"name": "a"})
BYTES = conv.ContentBlock(file={"blob": {"media_type": "text/plain", "data": b"\xff"}})


@pytest.mark.parametrize(
    ("message", "path", "why"),
    [
        (user(LINK), "messages[0].content[0]", "this API fetches no documents"),
        (user(BYTES), "messages[0].content[0]", "no text/plain in UTF-8"),
        (user(text("a"), CALL), "messages[0].content[1]", "of kind tool_call can't stand"),
        (user(conv.ContentBlock()), "messages[0].content[0]", "newer than this version"),
        (
            assistant(conv.ContentBlock(image=PNG)),
            "messages[0].content[0]",
            "of kind image can't stand",
        ),
        (assistant(conv.ContentBlock()), "messages[0].content[0]", "newer than this"),
        (
            conv.Message(role=conv.ROLE_TOOL, content=[text("x")]),
            "messages[0].content[0]",
            "results",
        ),
        (conv.Message(role=99), "messages[0].role", "the role 99 is not known"),
    ],
    ids=["link", "bytes", "call", "new", "picture", "new of a model", "no result", "role"],
)
async def test_what_has_no_form_is_named_by_its_path(message, path, why):
    """What this API has no form for ends the task, with the path of the block; nothing is left out silently."""
    with pytest.raises(Failed, match=why) as caught:
        await written(message)
    assert (caught.value.code, caught.value.details["field"]) == ("CONTENT_UNSUPPORTED", path)
