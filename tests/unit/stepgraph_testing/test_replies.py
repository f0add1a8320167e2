"""What scripts say."""

from __future__ import annotations

import pytest

from stepgraph_client import Failed, ToolError
from stepgraph_testing.replies import Script, call, calls, later


async def no_sleep(how_long):
    raise AssertionError(how_long)


def test_calls_are_a_message_of_the_assistants():
    """With text before them, or without."""
    message = calls(call("search", query="x", name="n"), call("t"), text="let me see")
    assert message.content[0].text.text == "let me see"
    assert [block.tool_call.name for block in message.content[1:]] == ["search", "t"]
    assert message.content[1].tool_call.args == '{"query":"x","name":"n"}'
    assert len(calls(call("t")).content) == 1


async def test_lines_are_said_one_by_one():
    """And what was asked is kept."""
    script = Script("it", ["a", Failed("X1", "no"), None])
    assert await script.say(1, no_sleep) == "a"
    with pytest.raises(Failed, match="X1"):
        await script.say(2, no_sleep)
    assert script.left == 1
    assert await script.say(3, no_sleep) is None
    assert script.asked == [1, 2, 3]
    with pytest.raises(Failed, match="the script of it has 3 lines, and this is call 4") as caught:
        await script.say(4, no_sleep)
    assert (caught.value.code, caught.value.retryable) == ("SCRIPT_ENDED", False)
    assert script.left == 0


async def test_a_function_says_what_it_likes():
    """Also if it is async, and as often as it is asked."""

    async def say(asked):
        return asked + 1

    script = Script("it", say)
    assert [await script.say(each, no_sleep) for each in (1, 2)] == [2, 3]
    assert script.left == 0


async def test_what_comes_later_sleeps_by_the_clock():
    """Nested, one after the other; errors too."""
    slept = []

    async def sleep(how_long):
        slept.append(how_long)

    script = Script("it", [later("1h", later("2h", "x")), later("3h", ToolError("no"))])
    assert await script.say(1, sleep) == "x"
    with pytest.raises(ToolError):
        await script.say(2, sleep)
    assert slept == ["1h", "2h", "3h"]
