from __future__ import annotations

import pytest

from stepgraph_server.core.schema_patterns import MAX_PATTERN_CHARACTERS, Pattern


@pytest.mark.parametrize(
    ("pattern", "text", "occurs"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("^a.c$", "abc", True),
        ("^abc$", "abc\n", False),
        (r"^\p{Lu}", "Éa", True),
        (r"^[\w.-]+@[\w-]+\.com$", "a.b@c.com", True),
    ],
)
def test_a_pattern_may_match_anywhere(pattern: str, text: str, occurs: bool) -> None:
    assert Pattern(pattern).occurs_in(text) is occurs


@pytest.mark.timeout(5)
def test_no_pattern_takes_long() -> None:
    """Python's engine would take longer than the universe has existed."""
    assert not Pattern("^(a+)+$").occurs_in("a" * 100_000 + "!")
    assert not Pattern("^(a|aa)*(b|ab)*$").occurs_in("a" * 100_000 + "!")


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ("(", "unclosed group"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences"),
        ("(a{1000}){1000}", "size limit"),
        ("a" * (MAX_PATTERN_CHARACTERS + 1), "513 characters"),
    ],
)
def test_what_can_not_be_used_is_refused_with_the_reason(pattern: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Pattern(pattern)
