"""Ids of calls: the server gives its own, and keeps what a provider gave."""

from __future__ import annotations

import pytest

from stepgraph.v1 import conversation_pb2 as pb
from stepgraph_server.core.call_ids import assign_call_ids


def call_block(call_id: str, provider_id: str = "") -> pb.ContentBlock:
    call = pb.ToolCallBlock(id=call_id, name="search", args="{}", provider_id=provider_id)
    return pb.ContentBlock(tool_call=call)


class TestCallIds:
    def ids(self, *given: tuple[str, str]) -> list[tuple[str, str]]:
        content = [call_block(call_id, provider_id) for call_id, provider_id in given]
        reply = assign_call_ids(pb.Message(content=content), "r7_")
        return [(block.tool_call.id, block.tool_call.provider_id) for block in reply.content]

    def test_a_provider_may_give_no_ids(self) -> None:
        assert self.ids(("", ""), ("", "")) == [("r7_0", ""), ("r7_1", "")]

    def test_a_provider_may_give_the_same_id_twice(self) -> None:
        assert self.ids(("call_1", ""), ("call_1", "")) == [("r7_0", "call_1"), ("r7_1", "call_1")]

    def test_the_providers_own_id_wins_over_what_stands_as_id(self) -> None:
        assert self.ids(("mine", "theirs")) == [("r7_0", "theirs")]

    @pytest.mark.parametrize("given", [("null", ""), ("", "null"), ("null", "null")])
    def test_null_is_no_id(self, given: tuple[str, str]) -> None:
        assert self.ids(given) == [("r7_0", "")]

    def test_an_id_stands_in_for_null(self) -> None:
        assert self.ids(("call_1", "null")) == [("r7_0", "call_1")]

    def test_nothing_else_changes(self) -> None:
        call = pb.ToolCallBlock(id="x", name="n", args="not json", provider_data=b"\xff")
        thinking = pb.ThinkingBlock(text="hm", provider_data=b"\x00")
        message = pb.Message(
            role=pb.ROLE_ASSISTANT,
            content=[pb.ContentBlock(thinking=thinking), pb.ContentBlock(tool_call=call)],
            metadata={"a": "b"},
        )
        before = pb.Message()
        before.CopyFrom(message)
        reply = assign_call_ids(message, "r7_")
        assert message == before
        reply.content[1].tool_call.id = "x"
        reply.content[1].tool_call.provider_id = ""
        assert reply == before
