"""Blocks of messages as Anthropic's messages API has them."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1.value_pb2 import VALUE_FORM_BLOB, VALUE_FORM_TEXT, Blob, StoredValue
from stepgraph_client.providers.anthropic_blocks import Names, of_message
from stepgraph_client.providers.anthropic_call_ids import CallIds
from stepgraph_client.providers.tool_names import ToolNames
from stepgraph_client.task_errors import Failed
from tests.support.provider_context import Attempt

PNG = b"\x89PNG\r\n\x1a\nrest"


async def made(*blocks, attempt=None):
    message = pb.Message(content=blocks)
    names = Names(
        tools=ToolNames(
            block.tool_call.name for block in blocks if block.WhichOneof("kind") == "tool_call"
        ),
        calls=CallIds([message]),
    )
    return await of_message(message, names, (attempt or Attempt()).ctx, "messages[2]")


def text(words):
    return pb.ContentBlock(text=pb.TextBlock(text=words))


def thoughts(words, provider_data):
    return pb.ContentBlock(thinking=pb.ThinkingBlock(text=words, provider_data=provider_data))


def stored(digest, form, media_type=""):
    return StoredValue(digest=digest, form=form, media_type=media_type)


async def test_texts_are_sent_unless_they_are_empty():
    """A text is a text block; one that is empty, or only blank, is left out, since the API refuses it."""
    assert await made(text("a"), text(""), text(" \n"), text("b")) == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


async def test_a_call_and_its_result_have_one_id():
    """A call and its result carry the provider's id; what is wrong with a result is said by `is_error`."""
    call = pb.ToolCallBlock(id="1/a/0", name="files.read", args='{"n": 1}', provider_id="toolu_1")
    result = pb.ToolResultBlock(call_id="1/a/0", content=[text("no such file")], is_error=True)
    assert await made(pb.ContentBlock(tool_call=call), pb.ContentBlock(tool_result=result)) == [
        {"type": "tool_use", "id": "toolu_1", "name": "files_read", "input": {"n": 1}},
        {
            "type": "tool_result",
            "tool_use_id": "toolu_1",
            "content": [{"type": "text", "text": "no such file"}],
            "is_error": True,
        },
    ]


async def test_a_result_may_be_empty():
    """A result that says nothing has no content, and is no error."""
    result = pb.ContentBlock(tool_result=pb.ToolResultBlock(call_id="c", content=[text("")]))
    assert await made(result) == [{"type": "tool_result", "tool_use_id": "c"}]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (
            thoughts("hm", b'{"anthropic":{"signature":"sig=="}}'),
            [{"type": "thinking", "thinking": "hm", "signature": "sig=="}],
        ),
        (
            thoughts("", b'{"anthropic":{"redacted":"opaque"}}'),
            [{"type": "redacted_thinking", "data": "opaque"}],
        ),
        (thoughts("hm", b""), []),
        (thoughts("hm", b"\xff\x00"), []),
        (thoughts("hm", b'{"openai":{"signature":"sig=="}}'), []),
        (thoughts("hm", b'{"anthropic":{"signature":7}}'), []),
    ],
    ids=["signed", "redacted", "unsigned", "bytes", "another provider's", "no text"],
)
async def test_thoughts_go_back_only_where_they_came_from(block, expected):
    """Signed and redacted thoughts are sent back unchanged; those that this API has not signed are left out."""
    assert await made(block) == expected


async def test_pictures_are_sent_or_linked():
    """A picture is sent in Base64, wherever it is kept; a location stays one."""
    attempt = Attempt()
    attempt.values.contents["d"] = PNG
    kept = pb.ImageBlock(stored=stored("d", VALUE_FORM_BLOB, "image/png"))
    inline = pb.ImageBlock(blob=Blob(data=PNG))
    linked = pb.ImageBlock(uri="https://example.com/a.png")
    blocks = [pb.ContentBlock(image=image) for image in (kept, inline, linked)]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgpyZXN0"}
    assert [block["source"] for block in await made(*blocks, attempt=attempt)] == [
        source,
        source,
        {"type": "url", "url": "https://example.com/a.png"},
    ]


async def test_documents_are_pdf_text_or_linked():
    """A PDF is sent in Base64, a text as it is, with its name; a location stays one."""
    attempt = Attempt()
    attempt.values.contents["t"] = "größer".encode()
    files = (
        pb.FileBlock(blob=Blob(media_type="application/pdf", data=b"%PDF"), name="a.pdf"),
        pb.FileBlock(stored=stored("t", VALUE_FORM_TEXT)),
        pb.FileBlock(uri="https://example.com/a.pdf"),
    )
    blocks = [pb.ContentBlock(file=file) for file in files]
    assert await made(*blocks, attempt=attempt) == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="},
            "title": "a.pdf",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "größer"},
        },
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
    ]


@pytest.mark.parametrize(
    ("block", "why"),
    [
        (
            pb.ContentBlock(image=pb.ImageBlock(blob=Blob(media_type="image/tiff", data=b"x"))),
            "takes image/gif, .* not image/tiff",
        ),
        (
            pb.ContentBlock(file=pb.FileBlock(blob=Blob(media_type="text/plain", data=b"\xff"))),
            "text/plain is UTF-8",
        ),
        (
            pb.ContentBlock(file=pb.FileBlock(blob=Blob(media_type="audio/wav", data=b"x"))),
            "takes application/pdf and text/…, not audio/wav",
        ),
        (pb.ContentBlock(), "it is empty, or of a kind that is newer"),
    ],
    ids=["picture", "encoding", "document", "unknown"],
)
async def test_what_has_no_form_is_refused_with_its_path(block, why):
    """What the API takes in no form is refused with its path, also inside the result of a tool."""
    with pytest.raises(Failed, match=rf"messages\[2\]\.content\[0\]: .*{why}") as caught:
        await made(block)
    assert (caught.value.code, caught.value.retryable) == ("CONTENT_UNSUPPORTED", False)
    result = pb.ContentBlock(
        tool_result=pb.ToolResultBlock(call_id="c", content=[text("a"), block])
    )
    with pytest.raises(Failed, match=r"messages\[2\]\.content\[0\]\.content\[1\]: "):
        await made(result)
