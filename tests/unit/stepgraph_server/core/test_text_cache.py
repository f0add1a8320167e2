from __future__ import annotations

from stepgraph_server.core.text_cache import TextCache


def test_what_was_put_in_is_found() -> None:
    cache: TextCache[int] = TextCache(1_000)
    cache.put("a", 1)
    assert cache.get("a") == 1
    assert cache.get("b") is None


def test_the_first_that_was_put_in_for_a_text_stays() -> None:
    cache: TextCache[int] = TextCache(1_000)
    cache.put("a", 1)
    cache.put("a", 2)
    assert cache.get("a") == 1


def test_the_least_recently_used_go_first() -> None:
    cache: TextCache[int] = TextCache(1_000)
    for number, text in enumerate(("a", "b", "c")):
        cache.put(text, number)
    cache.get("a")
    cache.put("d", 3)
    assert [cache.get(text) for text in "abcd"] == [0, None, 2, 3]


def test_large_texts_count_for_more() -> None:
    cache: TextCache[int] = TextCache(2_000)
    for text in ("a", "b", "c"):
        cache.put(text, 1)
    cache.put("x" * 1_500, 1)
    assert len(cache) == 1


def test_a_text_that_is_larger_than_everything_is_not_kept() -> None:
    cache: TextCache[int] = TextCache(500)
    cache.put("x" * 500, 1)
    assert len(cache) == 0
