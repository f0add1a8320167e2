from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph.v1 import llm_pb2, transition_pb2
from stepgraph.v1.graph_pb2 import ContextWindow
from stepgraph_server.core.conversation import (
    NOT_RUN,
    CallRef,
    Conversation,
    Entry,
    message_text,
    result_message,
)


def text_block(text: str) -> pb.ContentBlock:
    return pb.ContentBlock(text=pb.TextBlock(text=text))


def user(text: str) -> pb.Message:
    return pb.Message(role=pb.ROLE_USER, content=[text_block(text)])


def call_block(call_id: str, provider_id: str = "") -> pb.ContentBlock:
    call = pb.ToolCallBlock(id=call_id, name="search", args="{}", provider_id=provider_id)
    return pb.ContentBlock(tool_call=call)


def asks(*call_ids: str, text: str = "") -> pb.Message:
    content = [text_block(text)] if text else []
    content += [call_block(each) for each in call_ids]
    return pb.Message(role=pb.ROLE_ASSISTANT, content=content)


def result_block(call_id: str, text: str = "ok") -> pb.ContentBlock:
    result = pb.ToolResultBlock(call_id=call_id, content=[text_block(text)])
    return pb.ContentBlock(tool_result=result)


def answers(*call_ids: str, text: str = "ok") -> pb.Message:
    return pb.Message(role=pb.ROLE_TOOL, content=[result_block(each, text) for each in call_ids])


def conversation_of(*messages: pb.Message) -> Conversation:
    conversation = Conversation()
    for message in messages:
        conversation.append(message)
    return conversation


def read(conversation: Conversation, window: ContextWindow | None = None) -> list[pb.Message]:
    """Return what a model reads, and check that all forms of an arrangement agree."""
    arranged = conversation.arrange(window)
    messages = [pb.Message.FromString(data) for data in arranged.messages]
    request = llm_pb2.LlmRequest.FromString(arranged.joined())
    assert list(request.messages) == messages
    context = transition_pb2.StepContext.FromString(arranged.joined(9))
    assert list(context.conversation) == messages
    assert arranged.count == len(messages)
    assert arranged.size == len(arranged.joined()) == sum(map(len, arranged.parts))
    return messages


def outline(messages: list[pb.Message]) -> list[str]:
    """Write messages short: u:text, a:ids, t:id=text, and ! for an error."""
    lines = []
    for message in messages:
        if message.role == pb.ROLE_TOOL:
            (block,) = message.content
            result = block.tool_result
            mark = "!" if result.is_error else ""
            lines.append(f"t:{result.call_id}={mark}{result.content[0].text.text}")
        elif message.role == pb.ROLE_ASSISTANT:
            ids = [block.tool_call.id for block in message.content if block.HasField("tool_call")]
            lines.append(f"a:{','.join(ids)}")
        else:
            lines.append(f"u:{message_text(message)}")
    return lines


class TestAppending:
    def test_what_was_appended_is_given_back_in_order(self) -> None:
        messages = [user("hi"), asks("c1"), answers("c1")]
        conversation = conversation_of(*messages)
        assert conversation.messages() == messages
        assert conversation.messages(1, 2) == [asks("c1")]
        assert len(conversation) == 3

    def test_the_message_is_not_kept(self) -> None:
        message = user("before")
        conversation = conversation_of(message)
        message.content[0].text.text = "after"
        assert conversation.last_text() == "before"

    def test_entries_can_be_shared(self) -> None:
        entry = Entry(user("hi"))
        one, other = Conversation(), Conversation()
        one.append_entry(entry)
        other.append_entry(entry)
        assert one.entries[0] is other.entries[0]
        assert entry.size == len(entry.data)

    def test_an_entry_knows_calls_and_results(self) -> None:
        assert Entry(asks("c1", "c2")).calls == (
            CallRef("c1", "search", ""),
            CallRef("c2", "search", ""),
        )
        assert Entry(answers("c1", "c2")).results == ("c1", "c2")

    def test_the_last_text_is_that_of_all_text_blocks(self) -> None:
        assert Conversation().last_text() == ""
        message = pb.Message(
            role=pb.ROLE_ASSISTANT, content=[text_block("a"), call_block("c"), text_block("b")]
        )
        assert conversation_of(message).last_text() == "ab"

    def test_a_message_of_it_has_everything(self) -> None:
        message = pb.Conversation(id="chat", messages=[user("hi")], metadata={"a": "b"})
        assert Conversation.from_message(message).to_message() == message

    def test_a_copy_goes_its_own_way(self) -> None:
        one = conversation_of(user("hi"), asks("c1"))
        one.note("c1", "denied")
        other = one.copy()
        other.append(answers("c1"))
        other.metadata["a"] = "b"
        assert outline(read(one)) == ["u:hi", "a:c1", "t:c1=!denied"]
        assert outline(read(other)) == ["u:hi", "a:c1", "t:c1=ok"]
        assert one.metadata == {}


class TestArranging:
    def test_results_follow_their_message_in_call_order(self) -> None:
        conversation = conversation_of(
            asks("c1", "c2", "c3"), user("meanwhile"), answers("c3"), answers("c2"), answers("c1")
        )
        expected = ["a:c1,c2,c3", "t:c1=ok", "t:c2=ok", "t:c3=ok", "u:meanwhile"]
        assert outline(read(conversation)) == expected

    def test_results_of_one_message_are_taken_apart(self) -> None:
        conversation = conversation_of(asks("c1", "c2"), answers("c2", "c1"))
        assert outline(read(conversation)) == ["a:c1,c2", "t:c1=ok", "t:c2=ok"]

    def test_a_call_without_a_result_gets_one_that_says_so(self) -> None:
        conversation = conversation_of(asks("c1", "c2"), answers("c2"))
        assert outline(read(conversation)) == ["a:c1,c2", f"t:c1=!{NOT_RUN}", "t:c2=ok"]

    def test_a_noted_reason_is_told(self) -> None:
        conversation = conversation_of(asks("c1"))
        read(conversation)
        conversation.note("c1", "denied by a person")
        assert outline(read(conversation)) == ["a:c1", "t:c1=!denied by a person"]
        conversation.note("c1", "cancelled")
        assert outline(read(conversation)) == ["a:c1", "t:c1=!cancelled"]

    def test_a_denied_call_is_not_open_and_says_why(self) -> None:
        conversation = conversation_of(asks("c1", "c2"))
        conversation.deny("c1", "no")
        assert [conversation.is_open(each) for each in ("c1", "c2")] == [False, True]
        assert outline(read(conversation)) == ["a:c1,c2", "t:c1=!no", "t:c2=!not run"]
        twin = conversation.copy()
        assert not twin.is_open("c1")

    def test_what_was_noted_can_be_taken_over_by_another_conversation(self) -> None:
        """A message of it has no place for notes, so a result says it there."""
        conversation = conversation_of(asks("c1", "c2", "c3"))
        conversation.note("c3", "cancelled")
        conversation.deny("c1", "no")
        other = conversation_of(*conversation.messages(), *conversation.noted_results())
        assert outline(read(other)) == [
            "a:c1,c2,c3",
            "t:c1=!no",
            "t:c2=!not run",
            "t:c3=!cancelled",
        ]
        assert conversation_of().noted_results() == []

    def test_a_reason_may_be_noted_before_the_call(self) -> None:
        conversation = Conversation()
        conversation.note("c1", "denied")
        conversation.append(asks("c0", "c1"))
        assert outline(read(conversation)) == ["a:c0,c1", f"t:c0=!{NOT_RUN}", "t:c1=!denied"]

    def test_a_result_takes_the_place_of_a_reason(self) -> None:
        conversation = conversation_of(asks("c1"))
        conversation.note("c1", "denied")
        read(conversation)
        conversation.append(answers("c1"))
        conversation.note("c1", "too late")
        assert outline(read(conversation)) == ["a:c1", "t:c1=ok"]

    def test_a_result_without_its_call_is_not_shown(self) -> None:
        assert outline(read(conversation_of(user("hi"), answers("c9")))) == ["u:hi"]

    def test_a_result_may_come_before_its_call(self) -> None:
        conversation = conversation_of(answers("c2"), answers("c1"), user("hi"), asks("c1", "c2"))
        assert outline(read(conversation)) == ["u:hi", "a:c1,c2", "t:c1=ok", "t:c2=ok"]

    def test_the_first_result_of_a_call_stands(self) -> None:
        conversation = conversation_of(
            asks("c1"), answers("c1", text="first"), answers("c1", text="second")
        )
        assert outline(read(conversation)) == ["a:c1", "t:c1=first"]

    def test_an_id_that_is_used_again_is_another_call(self) -> None:
        conversation = conversation_of(
            asks("c1"), answers("c1", text="one"), asks("c1"), answers("c1", text="two")
        )
        assert outline(read(conversation)) == ["a:c1", "t:c1=one", "a:c1", "t:c1=two"]

    def test_a_result_belongs_to_the_latest_message_that_waits(self) -> None:
        conversation = conversation_of(
            asks("c1"), asks("c1", "c1"), answers("c1", text="x"), answers("c1", text="y")
        )
        expected = ["a:c1", f"t:c1=!{NOT_RUN}", "a:c1,c1", "t:c1=x", "t:c1=y"]
        assert outline(read(conversation)) == expected

    def test_equal_ids_that_come_after_their_results_are_answered_in_order(self) -> None:
        conversation = conversation_of(
            answers("c1", text="x"), answers("c1", text="y"), asks("c1", "c1", "c1")
        )
        expected = ["a:c1,c1,c1", "t:c1=x", "t:c1=y", f"t:c1=!{NOT_RUN}"]
        assert outline(read(conversation)) == expected

    def test_results_bear_the_providers_id_of_their_call(self) -> None:
        message = pb.Message(
            role=pb.ROLE_ASSISTANT, content=[call_block("c1", "toolu_1"), call_block("c2")]
        )
        conversation = conversation_of(message, answers("c2", "c1"))
        conversation.append(pb.Message(role=pb.ROLE_ASSISTANT, content=[call_block("c3", "x")]))
        ids = [
            block.tool_result.provider_id
            for each in read(conversation)
            for block in each.content
            if block.HasField("tool_result")
        ]
        assert ids == ["toolu_1", "", "x"]

    def test_a_result_written_for_its_call_is_taken_as_it_is(self) -> None:
        message = pb.Message(role=pb.ROLE_ASSISTANT, content=[call_block("c1", "toolu_1")])
        conversation = conversation_of(message)
        call = conversation.open_call("c1")
        assert call == CallRef("c1", "search", "toolu_1")
        entry = Entry(result_message(call, [text_block("ok")], is_error=False))
        conversation.append_entry(entry)
        assert conversation.arrange().messages[1] is entry.data
        assert conversation.open_call("c1") is None
        assert conversation.open_call("c2") is None

    def test_metadata_and_opaque_data_stay(self) -> None:
        thinking = pb.ThinkingBlock(text="hm", provider_data=b"\x00signature")
        message = pb.Message(
            role=pb.ROLE_ASSISTANT,
            content=[pb.ContentBlock(thinking=thinking), call_block("c1", "p")],
            metadata={"node": "think"},
        )
        result = answers("c1")
        result.metadata["node"] = "act"
        first, second = read(conversation_of(message, result))
        assert first == message
        assert second.metadata == {"node": "act"}

    def test_a_snapshot_does_not_change(self) -> None:
        conversation = conversation_of(*[asks(f"c{index}") for index in range(40)])
        arranged = conversation.arrange()
        before = (arranged.joined(), list(arranged.messages))
        conversation.append(answers("c0"))
        conversation.append(user("more"))
        read(conversation)
        assert (arranged.joined(), arranged.messages) == before

    @pytest.mark.parametrize("late", [0, 15, 16, 31, 32, 99])
    def test_a_late_result_changes_its_place_in_a_long_conversation(self, late: int) -> None:
        """Places lie before, at and behind the borders of the pieces that are kept."""
        messages = [asks(f"c{index}") for index in range(100)]
        conversation = conversation_of(*messages)
        read(conversation)
        conversation.append(answers(f"c{late}"))
        lines = outline(read(conversation))
        assert lines[2 * late + 1] == f"t:c{late}=ok"
        assert sum(line.endswith(NOT_RUN) for line in lines) == 99

    def test_a_tool_message_without_results_is_not_shown(self) -> None:
        stray = pb.Message(role=pb.ROLE_TOOL, content=[text_block("?")])
        assert read(conversation_of(user("hi"), stray)) == [user("hi")]


class TestWindows:
    CONVERSATION = (
        user("u0"),
        asks("c1", "c2"),
        answers("c1", "c2"),
        user("u4"),
        asks("c5"),
        answers("c5"),
        user("u7"),
    )
    ALL = ("u:u0", "a:c1,c2", "t:c1=ok", "t:c2=ok", "u:u4", "a:c5", "t:c5=ok", "u:u7")

    def outline(self, window: ContextWindow) -> list[str]:
        return outline(read(conversation_of(*self.CONVERSATION), window))

    def test_without_limits_everything_is_read(self) -> None:
        assert self.outline(ContextWindow()) == [*self.ALL]
        assert self.outline(ContextWindow(max_bytes=1_000_000)) == [*self.ALL]

    @pytest.mark.parametrize(
        ("first", "kept"), [(0, 0), (1, 1), (2, 4), (3, 4), (4, 4), (5, 5), (99, 8)]
    )
    def test_of_the_beginning_whole_groups_stay(self, first: int, kept: int) -> None:
        assert self.outline(ContextWindow(first_messages=first)) == [*self.ALL[:kept]]

    @pytest.mark.parametrize(
        ("last", "kept"), [(0, 0), (1, 1), (2, 3), (3, 3), (4, 4), (5, 7), (99, 8)]
    )
    def test_of_the_end_whole_groups_stay(self, last: int, kept: int) -> None:
        assert self.outline(ContextWindow(last_messages=last)) == [*self.ALL[8 - kept :]]

    def test_both_ends_can_stay(self) -> None:
        window = ContextWindow(first_messages=1, last_messages=2)
        assert self.outline(window) == [self.ALL[0], *self.ALL[5:]]

    def test_ends_that_meet_leave_nothing_out_and_nothing_twice(self) -> None:
        window = ContextWindow(first_messages=5, last_messages=7)
        assert self.outline(window) == [*self.ALL]

    def test_of_too_many_bytes_the_oldest_groups_go(self) -> None:
        sizes = [len(data) for data in conversation_of(*self.CONVERSATION).arrange().messages]
        exactly = ContextWindow(max_bytes=sum(sizes[4:]))
        assert self.outline(exactly) == [*self.ALL[4:]]
        less = ContextWindow(max_bytes=sum(sizes[4:]) - 1)
        assert self.outline(less) == [*self.ALL[5:]]
        part_of_a_group = ContextWindow(max_bytes=sum(sizes[3:]))
        assert self.outline(part_of_a_group) == [*self.ALL[4:]]

    def test_the_first_messages_stay_whatever_the_bytes(self) -> None:
        sizes = [len(data) for data in conversation_of(*self.CONVERSATION).arrange().messages]
        window = ContextWindow(first_messages=1, last_messages=99, max_bytes=sizes[0] + sizes[7])
        assert self.outline(window) == [self.ALL[0], self.ALL[7]]

    def test_both_limits_hold(self) -> None:
        window = ContextWindow(last_messages=3, max_bytes=1_000_000)
        assert self.outline(window) == [*self.ALL[5:]]

    def test_the_newest_message_stays_whatever_the_bytes(self) -> None:
        assert self.outline(ContextWindow(max_bytes=1)) == [self.ALL[7]]

    def test_an_empty_conversation_has_nothing_to_cut(self) -> None:
        window = ContextWindow(first_messages=1, last_messages=1, max_bytes=1)
        assert read(Conversation(), window) == []

    def test_a_window_can_begin_anywhere_in_a_long_conversation(self) -> None:
        conversation = conversation_of(*[user(f"u{index}") for index in range(200)])
        window = ContextWindow(first_messages=40, last_messages=105)
        lines = outline(read(conversation, window))
        assert lines == [f"u:u{index}" for index in (*range(40), *range(95, 200))]
