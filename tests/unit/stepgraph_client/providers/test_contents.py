"""What the blocks of messages hold, wherever it is kept."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1.value_pb2 import VALUE_FORM_BLOB, VALUE_FORM_TEXT, Blob, StoredValue
from stepgraph_client.providers.contents import (
    Bytes,
    Link,
    arguments_of,
    document_of,
    picture_of,
    text_of,
)
from stepgraph_client.task_errors import Failed
from tests.support.provider_context import Attempt

PNG = b"\x89PNG\r\n\x1a\nrest"
PATH = "messages[1].content[0]"


def stored(digest, form=VALUE_FORM_TEXT, media_type=""):
    return StoredValue(digest=digest, form=form, media_type=media_type)


async def test_text_is_read_wherever_it_is():
    """Text is read from the block, or from where it is stored."""
    attempt = Attempt()
    attempt.values.contents["d"] = "größer".encode()
    assert await text_of(pb.TextBlock(text="here"), attempt.ctx, PATH) == "here"
    assert await text_of(pb.TextBlock(stored=stored("d")), attempt.ctx, PATH) == "größer"


async def test_what_is_gone_is_named_by_its_path():
    """A stored value that is gone ends the task, and is named by its path and digest."""
    with pytest.raises(Failed, match=r"messages\[1\]\.content\[0\]: there is no .* gone") as caught:
        await text_of(pb.TextBlock(stored=stored("gone")), Attempt().ctx, PATH)
    assert (caught.value.code, caught.value.retryable) == ("CONTENT_UNSUPPORTED", False)
    assert caught.value.details == {"field": PATH}


async def test_bytes_are_no_text():
    """A stored value that is no UTF-8 is no text."""
    attempt = Attempt()
    attempt.values.contents["d"] = b"\xff\xfe"
    with pytest.raises(Failed, match="is no text"):
        await text_of(pb.TextBlock(stored=stored("d")), attempt.ctx, PATH)


async def test_a_picture_is_inline_stored_or_linked():
    """A picture comes from the block or from where it is stored; a location stays one."""
    attempt = Attempt()
    attempt.values.contents["d"] = b"jpeg"
    inline = pb.ImageBlock(blob=Blob(media_type="image/webp", data=b"webp"))
    kept = pb.ImageBlock(stored=stored("d", VALUE_FORM_BLOB, "image/jpeg"))
    linked = pb.ImageBlock(uri="https://example.com/a.png")
    assert await picture_of(inline, attempt.ctx, PATH) == Bytes(
        media_type="image/webp", data=b"webp"
    )
    assert await picture_of(kept, attempt.ctx, PATH) == Bytes(media_type="image/jpeg", data=b"jpeg")
    assert await picture_of(linked, attempt.ctx, PATH) == Link(uri="https://example.com/a.png")


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a..", "image/gif"),
        (b"GIF87a..", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8", "image/webp"),
    ],
)
async def test_a_picture_without_a_media_type_is_recognised(data, media_type):
    """A picture without a media type is recognised by how it begins."""
    found = await picture_of(pb.ImageBlock(blob=Blob(data=data)), Attempt().ctx, PATH)
    assert found == Bytes(media_type=media_type, data=data)


@pytest.mark.parametrize(
    "block",
    [
        pb.ImageBlock(),
        pb.ImageBlock(blob=Blob(data=b"what")),
        pb.ImageBlock(blob=Blob(media_type="application/pdf", data=b"what")),
    ],
    ids=["empty", "unknown", "a document"],
)
async def test_what_is_no_picture_is_refused(block):
    """What is no picture, or has no content, is refused with its path."""
    with pytest.raises(Failed, match=r"messages\[1\]\.content\[0\]: "):
        await picture_of(block, Attempt().ctx, PATH)


async def test_a_document_may_be_text():
    """A stored text is a document of plain text; one without a media type is bytes."""
    attempt = Attempt()
    attempt.values.contents["d"] = b"words"
    kept = pb.FileBlock(stored=stored("d"), name="a.txt")
    assert await document_of(kept, attempt.ctx, PATH) == Bytes(
        media_type="text/plain", data=b"words"
    )
    plain = await document_of(pb.FileBlock(blob=Blob(data=b"x")), attempt.ctx, PATH)
    assert plain == Bytes(media_type="application/octet-stream", data=b"x")


def test_a_data_url_has_the_content_inside():
    """A data URL has the media type and the content in Base64."""
    assert Bytes(media_type="image/png", data=b"\x00\xff").data_url == "data:image/png;base64,AP8="


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("", {}),
        ('{"n": 9007199254740993}', {"n": 9007199254740993}),
        ("nonsense", {"unreadable_arguments": "nonsense"}),
        ("[1]", {"unreadable_arguments": "[1]"}),
        ('{"a": NaN}', {"unreadable_arguments": '{"a": NaN}'}),
        ("[" * 100_000, {"unreadable_arguments": "[" * 100_000}),
    ],
    ids=["none", "large number", "no JSON", "a list", "NaN", "too deep"],
)
def test_arguments_of_a_call_are_an_object_in_any_case(args, expected):
    """What a model wrote in place of an object is sent back under a name, so that the history can be read."""
    assert arguments_of(pb.ToolCallBlock(args=args)) == expected
