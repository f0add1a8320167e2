from __future__ import annotations

from itertools import count

import pytest

from stepgraph.v1 import conversation_pb2, state_pb2
from stepgraph.v1 import value_pb2 as pb
from stepgraph_server.core import values
from stepgraph_server.core.values import ValueLimits, ValueNotReadable

DIGEST = "sha256:" + "0" * 64
STORED_TEXT = pb.StoredValue(digest=DIGEST, size_bytes=1, form=pb.VALUE_FORM_TEXT)
STORED_BLOB = pb.StoredValue(
    digest=DIGEST, size_bytes=1, form=pb.VALUE_FORM_BLOB, media_type="image/png"
)
BIG = "x" * (256 * 1024 + 1)
# A variant that a newer peer may know: field 99 of any message.
UNKNOWN = b"\x9a\x06\x00"


def text(content: str) -> conversation_pb2.ContentBlock:
    return conversation_pb2.ContentBlock(text=conversation_pb2.TextBlock(text=content))


def problems(found: list[values.Violation]) -> list[tuple[str, str]]:
    return [(violation.path, violation.reason) for violation in found]


class TestReading:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (pb.Value(text="3"), "3"),
            (pb.Value(json='{"a": [1, 2.50]}'), {"a": [1, 2.5]}),
            (pb.Value(json="9007199254740993"), 9007199254740993),
            (pb.Value(json="null"), None),
            (pb.Value(), None),
        ],
        ids=count(),
    )
    def test_a_value_says_what_it_holds(self, value: pb.Value, expected: object) -> None:
        assert values.to_json(value) == expected

    @pytest.mark.parametrize(
        ("value", "kind"),
        [
            (pb.Value(blob=pb.Blob(data=b"x")), "blob"),
            (pb.Value(stored=STORED_TEXT), "stored"),
            (pb.Value(secret=pb.Secret(name="KEY")), "secret"),
            (pb.Value(json="{"), "json"),
        ],
        ids=count(),
    )
    def test_some_values_can_not_be_read(self, value: pb.Value, kind: str) -> None:
        with pytest.raises(ValueNotReadable) as caught:
            values.to_json(value)
        assert caught.value.kind == kind

    def test_a_text_is_parsed_once(self) -> None:
        value = pb.Value(json='["parsed once"]')
        assert values.to_json(value) is values.to_json(values.copy(value))

    @pytest.mark.parametrize(
        "value",
        [pb.Value(text="a"), pb.Value(json='{"a":[1,2.50]}'), pb.Value(json="null")],
        ids=count(),
    )
    def test_what_was_read_is_written_back_as_it_was(self, value: pb.Value) -> None:
        assert values.from_json(values.to_json(value)) == value

    def test_a_copy_is_equal_and_its_own(self) -> None:
        value = pb.Value(blob=pb.Blob(data=b"x"))
        own = values.copy(value)
        assert own == value
        own.text = "changed"
        assert value.HasField("blob")


class TestEquality:
    @pytest.mark.parametrize(
        ("value", "written", "equal"),
        [
            (pb.Value(text="a"), "a", True),
            (pb.Value(text="3"), "3.0", False),
            (pb.Value(text=""), "", True),
            (pb.Value(json="3"), "3", True),
            (pb.Value(json="3"), "3.0", True),
            (pb.Value(json="30e-1"), "3", True),
            (pb.Value(json="9007199254740993"), "9007199254740992", False),
            (pb.Value(json="9007199254740993"), "9007199254740992.0", False),
            (pb.Value(json="true"), "true", True),
            (pb.Value(json="true"), "1", False),
            (pb.Value(json=" true "), "true", True),
            (pb.Value(json="null"), "null", True),
            (pb.Value(json="null"), "", False),
            (pb.Value(json="3"), "not JSON", False),
            (pb.Value(json='"a"'), "a", False),
            (pb.Value(json='"a"'), '"a"', False),
            (pb.Value(json="[]"), "[]", False),
            (pb.Value(json="[]"), "{}", False),
            (pb.Value(json=" {}"), " {}", False),
            (pb.Value(secret=pb.Secret(name="a")), "a", False),
            (pb.Value(), "", False),
            (None, "", False),
        ],
        ids=count(),
    )
    def test_values_equal_what_a_graph_wrote_down(
        self, value: pb.Value | None, written: str, equal: bool
    ) -> None:
        assert values.equals_text(value, written) is equal


class TestValues:
    @pytest.mark.parametrize(
        "value",
        [
            pb.Value(text=""),
            pb.Value(text="é" * (128 * 1024)),
            pb.Value(text="x" * (256 * 1024)),
            pb.Value(json="[1, 2]"),
            pb.Value(blob=pb.Blob(media_type="image/png", data=b"x")),
            pb.Value(stored=STORED_TEXT),
            pb.Value(stored=STORED_BLOB),
            pb.Value(secret=pb.Secret(name="API_KEY")),
        ],
        ids=count(),
    )
    def test_what_is_right_passes(self, value: pb.Value) -> None:
        assert values.check_value(value, "v") == []

    @pytest.mark.parametrize(
        ("value", "path", "reason"),
        [
            (pb.Value(), "v", "UNKNOWN_VARIANT"),
            (pb.Value.FromString(UNKNOWN), "v", "UNKNOWN_VARIANT"),
            (pb.Value(text=BIG), "v", "PAYLOAD_TOO_LARGE"),
            (pb.Value(text="é" * (128 * 1024 + 1)), "v", "PAYLOAD_TOO_LARGE"),
            (pb.Value(json=f'"{BIG}"'), "v", "PAYLOAD_TOO_LARGE"),
            (pb.Value(json="1e400"), "v", "JSON_INVALID"),
            (pb.Value(json=""), "v", "JSON_INVALID"),
            (pb.Value(json='{"a":1,"a":2}'), "v", "JSON_INVALID"),
            (pb.Value(blob=pb.Blob(data=BIG.encode())), "v.blob", "PAYLOAD_TOO_LARGE"),
            (pb.Value(blob=pb.Blob(media_type="x" * 257)), "v.blob.media_type", "INVALID_REQUEST"),
            (pb.Value(secret=pb.Secret(name="")), "v.secret.name", "INVALID_REQUEST"),
            (pb.Value(secret=pb.Secret(name="a b")), "v.secret.name", "INVALID_REQUEST"),
        ],
        ids=count(),
    )
    def test_what_is_wrong_is_found(self, value: pb.Value, path: str, reason: str) -> None:
        found = values.check_value(value, "v")
        assert problems(found) == [(path, reason)]

    @pytest.mark.parametrize(
        ("change", "path", "reason"),
        [
            ({"digest": "sha256:" + "A" * 64}, "v.stored.digest", "INVALID_REQUEST"),
            ({"digest": DIGEST + "\n"}, "v.stored.digest", "INVALID_REQUEST"),
            ({"size_bytes": 64 * 1024 * 1024 + 1}, "v.stored.size_bytes", "PAYLOAD_TOO_LARGE"),
            ({"form": 0}, "v.stored.form", "INVALID_REQUEST"),
            ({"form": 77}, "v.stored.form", "UNKNOWN_VARIANT"),
            ({"media_type": "image/png"}, "v.stored.media_type", "INVALID_REQUEST"),
        ],
        ids=count(),
    )
    def test_references_must_be_sound(
        self, change: dict[str, object], path: str, reason: str
    ) -> None:
        stored = pb.StoredValue()
        stored.CopyFrom(STORED_TEXT)
        for name, changed in change.items():
            setattr(stored, name, changed)
        assert problems(values.check_value(pb.Value(stored=stored), "v")) == [(path, reason)]

    def test_limits_can_be_set(self) -> None:
        limits = ValueLimits(max_inline_bytes=3, max_stored_bytes=1)
        assert values.check_value(pb.Value(text="abc"), "v", limits) == []
        (violation,) = values.check_value(pb.Value(text="abcd"), "v", limits)
        assert violation.message == (
            "has 4 bytes, of at most 3; store the value and send a reference"
        )


def message(role: int, *blocks: conversation_pb2.ContentBlock) -> conversation_pb2.Message:
    return conversation_pb2.Message(role=role, content=blocks)  # type: ignore[arg-type]


def call(**fields: object) -> conversation_pb2.ContentBlock:
    block = conversation_pb2.ToolCallBlock(**fields)  # type: ignore[arg-type]
    return conversation_pb2.ContentBlock(tool_call=block)


def result(
    *content: conversation_pb2.ContentBlock, call_id: str = "c"
) -> conversation_pb2.ContentBlock:
    block = conversation_pb2.ToolResultBlock(call_id=call_id, content=content)
    return conversation_pb2.ContentBlock(tool_result=block)


def thinking(**fields: object) -> conversation_pb2.ContentBlock:
    block = conversation_pb2.ThinkingBlock(**fields)  # type: ignore[arg-type]
    return conversation_pb2.ContentBlock(thinking=block)


def image(**fields: object) -> conversation_pb2.ContentBlock:
    block = conversation_pb2.ImageBlock(**fields)  # type: ignore[arg-type]
    return conversation_pb2.ContentBlock(image=block)


def file(**fields: object) -> conversation_pb2.ContentBlock:
    block = conversation_pb2.FileBlock(**fields)  # type: ignore[arg-type]
    return conversation_pb2.ContentBlock(file=block)


STORED_BLOCK = conversation_pb2.ContentBlock(text=conversation_pb2.TextBlock(stored=STORED_TEXT))
LARGE_DATA = b"x" * (64 * 1024 + 1)
SYSTEM, USER, ASSISTANT, TOOL = 1, 2, 3, 4


class TestMessages:
    @pytest.mark.parametrize(
        "content",
        [
            message(SYSTEM, text("a")),
            message(USER, text("a"), STORED_BLOCK, image(uri="http://x"), file(stored=STORED_TEXT)),
            message(USER, image(stored=STORED_BLOB), image(blob=pb.Blob(data=b"x"))),
            message(
                ASSISTANT, thinking(text="hm"), text("a"), call(name="no such", args="{nonsense")
            ),
            message(TOOL, result(text("a"), image(uri="http://x")), result()),
            message(USER),
        ],
        ids=count(),
    )
    def test_what_is_right_passes(self, content: conversation_pb2.Message) -> None:
        assert values.check_message(content, "m") == []

    @pytest.mark.parametrize(
        ("content", "path", "reason"),
        [
            (message(0), "m.role", "INVALID_REQUEST"),
            (message(9), "m.role", "UNKNOWN_VARIANT"),
            (message(USER, conversation_pb2.ContentBlock()), "m.content[0]", "UNKNOWN_VARIANT"),
            (message(TOOL, conversation_pb2.ContentBlock()), "m.content[0]", "UNKNOWN_VARIANT"),
            (message(USER, text("a"), call(name="x")), "m.content[1]", "INVALID_REQUEST"),
            (message(USER, thinking(text="x")), "m.content[0]", "INVALID_REQUEST"),
            (message(ASSISTANT, result()), "m.content[0]", "INVALID_REQUEST"),
            (message(TOOL, text("a")), "m.content[0]", "INVALID_REQUEST"),
            (message(USER, text(BIG)), "m.content[0].text", "PAYLOAD_TOO_LARGE"),
            (
                message(USER, conversation_pb2.ContentBlock(text=conversation_pb2.TextBlock())),
                "m.content[0].text",
                "UNKNOWN_VARIANT",
            ),
            (
                message(
                    USER,
                    conversation_pb2.ContentBlock(
                        text=conversation_pb2.TextBlock(stored=STORED_BLOB)
                    ),
                ),
                "m.content[0].text.stored.form",
                "INVALID_REQUEST",
            ),
            (
                message(USER, image(stored=STORED_TEXT)),
                "m.content[0].image.stored.form",
                "INVALID_REQUEST",
            ),
            (message(USER, image()), "m.content[0].image", "UNKNOWN_VARIANT"),
            (message(USER, file(uri=BIG)), "m.content[0].file.uri", "PAYLOAD_TOO_LARGE"),
            (
                message(USER, file(blob=pb.Blob(data=BIG.encode()))),
                "m.content[0].file.blob",
                "PAYLOAD_TOO_LARGE",
            ),
            (
                message(ASSISTANT, call(args=BIG)),
                "m.content[0].tool_call.args",
                "PAYLOAD_TOO_LARGE",
            ),
            (
                message(ASSISTANT, call(name=BIG)),
                "m.content[0].tool_call.name",
                "PAYLOAD_TOO_LARGE",
            ),
            (
                message(ASSISTANT, call(provider_data=LARGE_DATA)),
                "m.content[0].tool_call.provider_data",
                "PAYLOAD_TOO_LARGE",
            ),
            (
                message(ASSISTANT, thinking(provider_data=LARGE_DATA)),
                "m.content[0].thinking.provider_data",
                "PAYLOAD_TOO_LARGE",
            ),
            (
                message(TOOL, result(call_id="")),
                "m.content[0].tool_result.call_id",
                "INVALID_REQUEST",
            ),
            (
                message(TOOL, result(text("a"), result())),
                "m.content[0].tool_result.content[1]",
                "INVALID_REQUEST",
            ),
            (
                message(TOOL, result(text(BIG))),
                "m.content[0].tool_result.content[0].text",
                "PAYLOAD_TOO_LARGE",
            ),
            (
                conversation_pb2.Message(role=USER, metadata={str(i): "" for i in range(65)}),
                "m.metadata",
                "LIMIT_EXCEEDED",
            ),
        ],
        ids=count(),
    )
    def test_what_is_wrong_is_found(
        self, content: conversation_pb2.Message, path: str, reason: str
    ) -> None:
        assert problems(values.check_message(content, "m")) == [(path, reason)]


class TestUpdates:
    def test_an_empty_update_passes(self) -> None:
        assert values.check_update(state_pb2.StateUpdate(), "u") == []

    def test_a_full_update_passes(self) -> None:
        update = state_pb2.StateUpdate(
            variables={"a": pb.Value(text="x"), "approval": pb.Value(json="1")},
            delete_variables=["b"],
            messages=[message(USER, text("hi"))],
            decision=state_pb2.GraphDecision(
                direct_answer=state_pb2.GraphDecision.DirectAnswer(text="x")
            ),
            paradigm="plan",
        )
        assert values.check_update(update, "u") == []

    def test_everything_that_is_wrong_is_found(self) -> None:
        update = state_pb2.StateUpdate(
            variables={"a": pb.Value(), "b c": pb.Value(text="x"), "_approval": pb.Value(text="x")},
            delete_variables=["a", "", "_choice.review"],
            messages=[message(0)],
            decision=state_pb2.GraphDecision(),
            paradigm="a b",
        )
        assert sorted(problems(values.check_update(update, "u"))) == [
            ("u.decision", "UNKNOWN_VARIANT"),
            ("u.delete_variables[0]", "INVALID_REQUEST"),
            ("u.delete_variables[1]", "INVALID_REQUEST"),
            ("u.delete_variables[2]", "INVALID_REQUEST"),
            ("u.messages[0].role", "INVALID_REQUEST"),
            ("u.paradigm", "INVALID_REQUEST"),
            ("u.variables", "INVALID_REQUEST"),
            ("u.variables._approval", "INVALID_REQUEST"),
            ("u.variables.a", "UNKNOWN_VARIANT"),
        ]


class TestDecisions:
    @pytest.mark.parametrize(
        ("decision", "found"),
        [
            (
                state_pb2.GraphDecision(
                    direct_answer=state_pb2.GraphDecision.DirectAnswer(text=BIG)
                ),
                [("d.direct_answer.text", "PAYLOAD_TOO_LARGE")],
            ),
            (
                state_pb2.GraphDecision(
                    tool_calls=state_pb2.GraphDecision.ToolCalls(
                        calls=[conversation_pb2.ToolCallBlock(args=BIG)]
                    )
                ),
                [("d.tool_calls.calls[0].args", "PAYLOAD_TOO_LARGE")],
            ),
            (
                state_pb2.GraphDecision(
                    delegate=state_pb2.GraphDecision.Delegate(agent_kind="", task=BIG)
                ),
                [
                    ("d.delegate.task", "PAYLOAD_TOO_LARGE"),
                    ("d.delegate.agent_kind", "INVALID_REQUEST"),
                ],
            ),
            (
                state_pb2.GraphDecision(
                    delegate=state_pb2.GraphDecision.Delegate(agent_kind="coder", task="x")
                ),
                [],
            ),
            (
                state_pb2.GraphDecision(
                    switch_paradigm=state_pb2.GraphDecision.SwitchParadigm(paradigm="")
                ),
                [("d.switch_paradigm.paradigm", "INVALID_REQUEST")],
            ),
            (
                state_pb2.GraphDecision(
                    switch_paradigm=state_pb2.GraphDecision.SwitchParadigm(paradigm="plan")
                ),
                [],
            ),
        ],
        ids=count(),
    )
    def test_each_variant_is_checked(
        self, decision: state_pb2.GraphDecision, found: list[tuple[str, str]]
    ) -> None:
        assert problems(values.check_decision(decision, "d")) == found
