"""What a model reads, over conversations of any shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1.graph_pb2 import ContextWindow
from stepgraph_server.core.conversation import Conversation

# Few ids, so that they are used again, answered twice, and answered before they are asked.
IDS = st.sampled_from(["a", "b", "c", "d"])


def text_block(text: str) -> pb.ContentBlock:
    return pb.ContentBlock(text=pb.TextBlock(text=text))


def asking(ids: list[str]) -> pb.Message:
    calls = [pb.ToolCallBlock(id=each, name="t", provider_id=f"p_{each}") for each in ids]
    content = [pb.ContentBlock(tool_call=call) for call in calls]
    return pb.Message(role=pb.ROLE_ASSISTANT, content=[text_block("so:"), *content])


def answering(results: list[tuple[str, str]]) -> pb.Message:
    blocks = [
        pb.ToolResultBlock(call_id=each, content=[text_block(text)]) for each, text in results
    ]
    return pb.Message(
        role=pb.ROLE_TOOL, content=[pb.ContentBlock(tool_result=block) for block in blocks]
    )


def saying(role: int, text: str) -> pb.Message:
    return pb.Message(role=role, content=[text_block(text)])  # type: ignore[arg-type]


MESSAGES = st.one_of(
    st.builds(saying, st.sampled_from([1, 2, 3]), st.text(max_size=5)),
    st.builds(asking, st.lists(IDS, max_size=4)),
    st.builds(answering, st.lists(st.tuples(IDS, st.text(max_size=3)), max_size=4)),
)
CONVERSATIONS = st.lists(MESSAGES, max_size=60)
OPTIONAL_COUNTS = st.one_of(st.none(), st.integers(min_value=0, max_value=30))
WINDOWS = st.builds(
    ContextWindow,
    first_messages=OPTIONAL_COUNTS,
    last_messages=OPTIONAL_COUNTS,
    max_bytes=st.integers(min_value=0, max_value=400),
)


def built(messages: list[pb.Message]) -> Conversation:
    conversation = Conversation()
    for message in messages:
        conversation.append(message)
    return conversation


def read(conversation: Conversation, window: ContextWindow | None = None) -> list[pb.Message]:
    return [pb.Message.FromString(data) for data in conversation.arrange(window).messages]


def calls_of(message: pb.Message) -> list[str]:
    return [block.tool_call.id for block in message.content if block.HasField("tool_call")]


def check_pairing(messages: list[pb.Message]) -> None:
    """Check that every message is followed by exactly the results of its calls, in call order."""
    at = 0
    while at < len(messages):
        message = messages[at]
        assert message.role != pb.ROLE_TOOL, "a result without its call"
        at += 1
        for call_id in calls_of(message):
            (block,) = messages[at].content
            assert block.tool_result.call_id == call_id
            assert block.tool_result.provider_id == f"p_{call_id}"
            at += 1


@given(CONVERSATIONS)
def test_each_call_is_directly_followed_by_exactly_its_result(messages: list[pb.Message]) -> None:
    check_pairing(read(built(messages)))


@given(CONVERSATIONS)
def test_nothing_is_lost_and_nothing_changes_its_order(messages: list[pb.Message]) -> None:
    arranged = read(built(messages))
    said = [message for message in messages if message.role != pb.ROLE_TOOL]
    assert [message for message in arranged if message.role != pb.ROLE_TOOL] == said


@given(CONVERSATIONS)
def test_as_many_results_are_shown_as_calls_and_results_allow(messages: list[pb.Message]) -> None:
    """By id: all results, if none came too many; else one for each call."""
    arranged = read(built(messages))
    for each in "abcd":
        calls = sum(calls_of(message).count(each) for message in messages)
        results = sum(
            block.tool_result.call_id == each for message in messages for block in message.content
        )
        shown = sum(
            block.tool_result.call_id == each and not block.tool_result.is_error
            for message in arranged
            for block in message.content
        )
        assert shown <= min(calls, results)
        if calls and results:
            assert shown >= 1


@given(CONVERSATIONS, st.lists(st.booleans(), min_size=60, max_size=60))
def test_arranging_on_the_way_changes_nothing(
    messages: list[pb.Message], looks: list[bool]
) -> None:
    """What is kept from one arrangement for the next gives what arranging from scratch gives."""
    conversation = Conversation()
    for message, look in zip(messages, looks, strict=False):
        conversation.append(message)
        if look:
            arranged = conversation.arrange()
            assert arranged.size == len(arranged.joined())
    scratch = built(messages).arrange()
    arranged = conversation.arrange()
    assert arranged.messages == scratch.messages
    assert arranged.joined() == scratch.joined()


@given(CONVERSATIONS, CONVERSATIONS)
def test_a_copy_is_as_good_as_the_original(
    before: list[pb.Message], after: list[pb.Message]
) -> None:
    original = built(before)
    original.arrange()
    untouched = original.arrange().messages
    other = original.copy()
    for message in after:
        other.append(message)
    assert other.arrange().joined() == built(before + after).arrange().joined()
    assert original.arrange().messages == untouched


@given(CONVERSATIONS, WINDOWS)
def test_a_window_parts_no_call_from_its_result(
    messages: list[pb.Message], window: ContextWindow
) -> None:
    conversation = built(messages)
    seen = read(conversation, window)
    check_pairing(seen)
    everything = read(conversation)
    # A beginning and an end of everything.
    assert any(
        seen == everything[:kept] + everything[len(everything) - (len(seen) - kept) :]
        for kept in range(len(seen) + 1)
    )
    arranged = conversation.arrange(window)
    assert arranged.size == len(arranged.joined())


@given(CONVERSATIONS, WINDOWS)
def test_a_window_keeps_what_it_promises(messages: list[pb.Message], window: ContextWindow) -> None:
    conversation = built(messages)
    everything = conversation.arrange().messages
    seen = conversation.arrange(window).messages
    first = window.first_messages if window.HasField("first_messages") else 0
    assert seen[:first] == everything[:first]
    if window.HasField("last_messages") and window.last_messages and not window.max_bytes:
        assert seen[-window.last_messages :] == everything[-window.last_messages :]
    if window.max_bytes and not window.HasField("first_messages"):
        total = sum(map(len, seen))
        newest = read(conversation, ContextWindow(last_messages=1))
        assert total <= window.max_bytes or len(seen) == len(newest)
