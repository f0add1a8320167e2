"""What executors may declare, and which requirements that meets."""

from __future__ import annotations

import pytest

from stepgraph.v1 import executor_service_pb2 as pb
from stepgraph_server.core.canonical import digest
from stepgraph_server.executors import capabilities
from stepgraph_server.executors.capabilities import NOTHING, change, declare, keys_of, unknown_kinds
from stepgraph_server.executors.violations import ViolationError
from tests.support.hellos import agent, llm, tool

Capability = pb.Capability
CONDITION = Capability(condition=Capability.Condition(name="is_safe"))
STEP = Capability(step=Capability.Step(program="plan"))
EFFECT = Capability(effect=Capability.Effect(kind="mail"))


def refused(*declared):
    with pytest.raises(ViolationError) as caught:
        declare(declared)
    return caught.value.violation


def test_each_kind_meets_its_requirement():
    abilities = declare([llm("gpt-4", "local-*"), tool("add"), agent("k"), CONDITION, STEP, EFFECT])
    digest_ = digest(tool("add").tool.definition)
    for key in (
        *(("llm", "gpt-4"), ("llm", "local-7"), ("llm", "local-")),
        *(("tool", "add", ""), ("tool", "add", digest_), ("agent", "k")),
        *(("condition", "is_safe"), ("step", "plan"), ("effect", "mail")),
    ):
        assert abilities.can(key), key
    for key in (
        *(("llm", "gpt-4o"), ("llm", "local"), ("llm", "")),
        *(("tool", "add", "sha256:0"), ("agent", "plan"), ("",)),
    ):
        assert not abilities.can(key), key


def test_nothing_meets_nothing():
    assert not NOTHING.can(("llm", "m"))
    assert NOTHING.messages() == []


def test_messages_list_all_models_as_one():
    assert declare([llm("a"), agent("k"), llm("b-*")]).messages() == [llm("a", "b-*"), agent("k")]


WRONG = [
    (llm(), "capabilities[0].llm.models"),
    (llm("a", ""), "capabilities[0].llm.models[1]"),
    (llm("m" * 129), "capabilities[0].llm.models[0]"),
    (llm("a*b"), "capabilities[0].llm.models[0]"),
    (llm("a**"), "capabilities[0].llm.models[0]"),
    (agent("no spaces"), "capabilities[0].agent.kind"),
    (agent(""), "capabilities[0].agent.kind"),
    (Capability(condition=Capability.Condition(name="1st")), "capabilities[0].condition.name"),
    (Capability(step=Capability.Step(program="a/b")), "capabilities[0].step.program"),
    (Capability(effect=Capability.Effect(kind="é")), "capabilities[0].effect.kind"),
    (tool("a" * 65), "capabilities[0].tool.definition.name"),
    (tool("delegate"), "capabilities[0].tool.definition.name"),
    (tool("switch_paradigm"), "capabilities[0].tool.definition.name"),
    (tool(description="x" * 16_385), "capabilities[0].tool.definition.description"),
    (tool(schema="{"), "capabilities[0].tool.definition.input_schema"),
    (tool(schema='{"type": "array"}'), "capabilities[0].tool.definition.input_schema"),
]


@pytest.mark.parametrize(
    ("declared", "path"), WRONG, ids=[f"{index}-{path}" for index, (_, path) in enumerate(WRONG)]
)
def test_a_wrong_capability_is_refused_with_its_path(declared, path):
    violation = refused(declared)
    assert violation.path == path
    assert violation.reason == "INVALID_REQUEST"
    assert len(violation.message) < 1_000


def test_a_broken_output_schema_is_refused():
    capability = tool()
    capability.tool.definition.output_schema = "[]"
    assert refused(capability).path == "capabilities[0].tool.definition.output_schema"


def test_the_longest_names_are_taken():
    declare([llm("m" * 128, "*"), agent("a" * 64), tool(description="x" * 16_384, schema="")])


def test_what_is_declared_twice_is_refused():
    assert "agent k" in refused(agent("k"), agent("k")).message
    assert refused(llm("a"), llm("b", "a")).path == "capabilities[1]"
    assert refused(tool(description="1"), tool(description="2")).path == "capabilities[1]"


def test_an_offer_says_whether_its_calls_need_approval():
    capability = tool("pay")
    capability.tool.requires_approval = True
    tools = declare([capability, tool("look")]).tools
    assert tools["pay"].requires_approval
    assert not tools["look"].requires_approval
    # It is no part of the definition, so executors that differ in it offer the same tool.
    assert tools["pay"].digest == declare([tool("pay")]).tools["pay"].digest


def test_too_many_are_refused(monkeypatch):
    monkeypatch.setattr(capabilities, "MAX_CAPABILITIES", 2)
    abilities = declare([llm("a", "b")])
    assert refused(llm("a", "b", "c")).path == "capabilities"
    with pytest.raises(ViolationError, match="3, of at most 2"):
        change(abilities, added=[agent("k")], removed=[])
    change(abilities, added=[agent("k")], removed=[llm("a")])


def test_an_unknown_kind_is_found_and_can_not_be_declared():
    newer = Capability.FromString(bytes.fromhex("ba3e00"))  # field 999 in the oneof
    assert newer.WhichOneof("kind") is None
    assert unknown_kinds([agent("k"), newer, Capability()]) == [1, 2]
    assert refused(newer).reason == "UNKNOWN_VARIANT"
    assert keys_of(newer) == []


def test_a_definition_with_fields_of_a_newer_version_is_refused_because_it_has_no_digest():
    capability = Capability()
    capability.tool.definition.MergeFromString(b"\n\x03add" + bytes.fromhex("ba3e00"))
    violation = refused(capability)
    assert violation.path == "capabilities[0].tool.definition"
    assert violation.reason == "UNKNOWN_VARIANT"


def test_a_change_takes_away_and_puts_in():
    before = declare([llm("a", "b"), tool("add"), agent("k")])
    after = change(before, added=[EFFECT], removed=[llm("a"), tool("add"), agent("unknown")])
    assert not after.can(("llm", "a"))
    assert not after.can(("tool", "add", ""))
    assert after.can(("llm", "b"))
    assert after.can(("effect", "mail"))
    assert before.can(("llm", "a")), "a change makes a new value"


def test_a_tool_of_the_same_name_takes_the_place_of_the_old_one():
    before = declare([tool(description="1")])
    after = change(before, added=[tool(description="2")], removed=[tool(description="1")])
    assert after.tools["search"].definition.description == "2"
    assert after.can(("tool", "search", digest(tool(description="2").tool.definition)))
    assert not after.can(("tool", "search", digest(tool(description="1").tool.definition)))
    assert len(after.messages()) == 1


def test_a_change_names_the_field_that_is_wrong():
    with pytest.raises(ViolationError) as caught:
        change(NOTHING, added=[agent("k"), agent("?")], removed=[])
    assert caught.value.violation.path == "update.added_capabilities[1].agent.kind"
