"""A token leads to the next page of the same request, and nowhere else."""

from __future__ import annotations

import base64
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import run_service_pb2
from stepgraph_server.api import paging
from stepgraph_server.config import PageSettings
from stepgraph_server.core.errors import Refused

SHAPE = (int, str)


def shown(value):
    """Return a short id for a message in a list of parameters."""
    return " ".join(str(value).split())


def request(**fields):
    return run_service_pb2.ListRunsRequest(**fields)


def test_a_token_gives_its_position_back():
    token = paging.encode(request(), (1_700_000_000_000_000, "run-ü"))

    assert re.fullmatch("[A-Za-z0-9_-]+", token)
    assert paging.decode_page(token, request(), SHAPE) == (1_700_000_000_000_000, "run-ü")


def test_no_token_is_the_first_page():
    assert paging.decode_page("", request(), SHAPE) is None


def test_the_page_size_and_the_spelling_of_the_namespace_may_change():
    token = paging.encode(request(page_size=5), (1, "a"))
    later = request(page_size=7, page_token=token, namespace="default")

    assert paging.decode_page(token, later, SHAPE) == (1, "a")


@pytest.mark.parametrize(
    "other",
    [
        request(namespace="other"),
        request(filter=run_service_pb2.RunFilter(roots_only=True)),
    ],
    ids=shown,
)
def test_a_token_of_another_request_is_refused(other):
    token = paging.encode(request(), (1, "a"))

    with pytest.raises(Refused) as caught:
        paging.decode_page(token, other, SHAPE)

    assert caught.value.reason == "PAGE_TOKEN_INVALID"
    assert caught.value.metadata == {"field": "page_token"}


@pytest.mark.parametrize("text", ["x", "%%%", "ä", "A" * 5_000, "AAAA", "=", "a b"])
def test_a_made_up_token_is_refused(text):
    with pytest.raises(Refused, match="PAGE_TOKEN_INVALID"):
        paging.decode_page(text, request(), SHAPE)


@pytest.mark.parametrize("position", [(1,), ("a", 1), (1, "a", 2), (True, "a")])
def test_a_token_of_another_shape_is_refused(position):
    token = paging.encode(request(), position)

    with pytest.raises(Refused, match="PAGE_TOKEN_INVALID"):
        paging.decode_page(token, request(), SHAPE)


@pytest.mark.parametrize("content", ["{", "3", "[[1]", "[" * 3_000])
def test_a_token_that_was_tampered_with_is_refused(content):
    token = paging.encode(request(), (1, "a"))
    forged = paging.base64.urlsafe_b64encode(
        paging.base64.urlsafe_b64decode(token + "==")[:10] + content.encode()
    )

    with pytest.raises(Refused, match="PAGE_TOKEN_INVALID"):
        paging.decode_page(forged.rstrip(b"=").decode(), request(), SHAPE)


def forged(position):
    """Return a token for this request as anybody can make it up."""
    head = base64.urlsafe_b64decode(paging.encode(request(), (1, "a")) + "==")[:10]
    return base64.urlsafe_b64encode(head + json.dumps(position).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "position", [[-1, "a"], [2**63, "a"], [2**70, "a"], [10**4_000, "a"], [1, "\ud800"], [1.0, "a"]]
)
def test_a_position_that_no_store_can_be_asked_for_is_refused(position):
    with pytest.raises(Refused, match="PAGE_TOKEN_INVALID"):
        paging.decode_page(forged(position), request(), SHAPE)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
ANY_CHARACTER = st.characters(exclude_categories=())


def outcome(decode, token):
    """Return the position, and why it was refused."""
    try:
        return decode(token, request(), SHAPE), ""
    except Refused as refused:
        return None, refused.reason


@given(st.lists(st.integers() | st.text(ANY_CHARACTER), max_size=3) | JSON)
def test_whatever_a_token_holds_is_a_position_that_can_be_asked_for_or_is_refused(position):
    found, reason = outcome(paging.decode_page, forged(position))

    assert reason in {"", "PAGE_TOKEN_INVALID"}
    if not reason:
        assert list(found) == position
        assert 0 <= found[0] < 2**63
        assert found[1].encode() or found[1] == ""


@given(
    st.text(ANY_CHARACTER) | st.binary().map(lambda data: base64.urlsafe_b64encode(data).decode())
)
def test_any_text_for_a_token_is_taken_or_refused_and_never_a_fault(text):
    assert outcome(paging.decode_page, text)[1] in {"", "PAGE_TOKEN_INVALID"}
    assert outcome(paging.decode_resume, text)[1] in {"", "RESUME_TOKEN_INVALID"}


def test_a_resume_token_is_refused_with_its_own_reason():
    watch = run_service_pb2.WatchRunsRequest(namespace="a")
    token = paging.encode(watch, (5,))

    assert paging.decode_resume(token, watch, (int,)) == (5,)
    with pytest.raises(Refused) as caught:
        paging.decode_resume(token, run_service_pb2.WatchRunsRequest(namespace="b"), (int,))
    assert caught.value.reason == "RESUME_TOKEN_INVALID"


@pytest.mark.parametrize(("asked", "given"), [(0, 50), (1, 1), (500, 500), (501, 500)])
def test_page_sizes_have_a_default_and_a_limit(asked, given):
    assert paging.entries(asked, PageSettings()) == given


@pytest.mark.parametrize(
    ("sizes", "limit", "page", "is_more"),
    [
        ([], 3, [], False),
        ([1, 2, 3], 3, [1, 2, 3], False),
        ([1, 2, 3, 4], 3, [1, 2, 3], True),
        ([6, 4, 1], 3, [6, 4], True),
        ([50, 1], 3, [50], True),
        ([50], 3, [50], False),
    ],
)
def test_a_page_is_cut_by_count_and_bytes_and_has_at_least_one_entry(sizes, limit, page, is_more):
    assert paging.cut(sizes, limit, 10, lambda size: size) == (page, is_more)
