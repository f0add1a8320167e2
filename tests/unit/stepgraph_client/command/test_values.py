from __future__ import annotations

import hashlib

import pytest

from stepgraph.v1.value_pb2 import VALUE_FORM_BLOB, VALUE_FORM_JSON, VALUE_FORM_TEXT
from stepgraph_client.command import values


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize(
    ("name", "words", "form", "media_type"),
    [
        ("a.txt", (), VALUE_FORM_TEXT, ""),
        ("a.json", (), VALUE_FORM_JSON, ""),
        ("a.png", (), VALUE_FORM_BLOB, "image/png"),
        ("a.qqq", (), VALUE_FORM_BLOB, "application/octet-stream"),
        ("a.txt", ("--as", "bytes", "--media-type", "x/y"), VALUE_FORM_BLOB, "x/y"),
        ("a.bin", ("--as", "json"), VALUE_FORM_JSON, ""),
    ],
)
def test_a_file_is_stored_as_what_it_is(
    run, server, tmp_path, name, words, form, media_type
) -> None:
    file = tmp_path / name
    file.write_text("[1]")
    ended = run("values", "put", str(file), *words)
    assert ended.out == f"{digest_of(b'[1]')}\n"
    assert f"values get {digest_of(b'[1]')}" in ended.err
    (stored, content) = server.values[digest_of(b"[1]")]
    assert (stored.form, stored.media_type, content) == (form, media_type, b"[1]")


def test_stdin_is_stored_and_read_again(run) -> None:
    """Byte for byte."""
    digest = run("values", "put", "-", "-o", "ids", typed=b"\x00\xff").out.strip()
    assert digest == digest_of(b"\x00\xff")


def test_what_is_read_goes_to_stdout_or_into_a_file(run, tmp_path) -> None:
    digest = run("values", "put", "-", "--as", "text", "-o", "ids", typed=b"ab\n").out.strip()
    assert run("values", "get", digest).out == "ab\n"
    target = tmp_path / "out.txt"
    ended = run("values", "get", digest, "--to", str(target))
    assert (ended.out, target.read_bytes()) == ("", b"ab\n")
    assert f"3 B in {target}" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("put", "/gone"), 2, "/gone can't be read: No such file"),
        (("put", "-", "--as", "text"), 2, "no text in UTF-8 (byte 0); store it with --as bytes"),
        (("put", "-", "--as", "json"), 2, "no text in UTF-8"),
        (("get", "abc"), 2, "'abc' is no digest: sha256: and 64"),
        (("get", digest_of(b"?")), 3, "VALUE_NOT_FOUND"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_said(run, words, code, said) -> None:
    ended = run("values", *words, typed=b"\xff")
    assert ended.code == code
    assert said in ended.err


def test_a_file_that_can_not_be_written_is_said(run) -> None:
    digest = run("values", "put", "-", "-o", "ids", typed=b"ab").out.strip()
    ended = run("values", "get", digest, "--to", "/gone/x")
    assert ended.code == 3
    assert "/gone/x can't be written" in ended.err


@pytest.mark.parametrize(
    ("content", "readable"),
    [(b"a\nb\t\xc3\xbc", True), (b"\xff", False), (b"a\x1b[2J", False), (b"", True)],
)
def test_a_terminal_is_not_given_what_would_steer_it(content, readable) -> None:
    assert values._is_readable(content) is readable


def test_what_has_no_end_is_not_read_for_ever(run, monkeypatch) -> None:
    """A device, say; the server would refuse it anyway, once it had all."""
    monkeypatch.setattr(values, "MAX_READ_BYTES", 1024)
    ended = run("values", "put", "/dev/zero")
    assert ended.code == 2
    assert "/dev/zero has more than 1 KiB" in ended.err
