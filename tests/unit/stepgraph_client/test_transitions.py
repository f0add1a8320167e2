"""Spawns, questions, signals and ends, in the schema's words."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from stepgraph.v1 import policy_pb2
from stepgraph_client import done, goto, node, program
from stepgraph_client.effects import EffectFailed
from stepgraph_client.transitions import Goto, ask, external, settled, signal, spawn
from stepgraph_client.values import from_value
from tests.support.step_turns import answered, failed, node_gave


class Verdict(BaseModel):
    """A verdict."""

    ok: bool


def test_ends_carry_values_or_none():
    """None means empty, and not null."""
    assert from_value(goto("a", {"x": 1}).transition.goto.carry) == {"x": 1}
    assert not goto("a").transition.goto.HasField("carry")
    assert from_value(done("x").transition.done.value) == "x"
    assert not done().transition.done.HasField("value")


def test_a_goto_is_no_exception():
    """`except Exception` must not hold a program up on its way out."""
    assert not issubclass(Goto, Exception)
    assert "billing" in str(Goto(goto("billing")))


def test_spawned_work_is_a_node_or_a_program():
    """With an input and a label, or without."""
    one, other = node("n", [1], label="first"), program("p")
    assert (one.body.node_id, from_value(one.input), one.label) == ("n", [1], "first")
    assert other.body.program == "p"
    assert not other.HasField("label")
    assert not other.HasField("input")


def test_what_is_no_spec_is_not_spawned():
    """The name of a program alone does not say what it works on."""
    with pytest.raises(TypeError, match=r"spawned are program.*found str"):
        spawn(["summarize"])  # type: ignore[list-item]


def test_each_join_reads_its_results_in_its_own_way():
    """Values in order; failures in their place; the winner."""
    specs = [program("p", 1), program("p", 2)]
    both = (node_gave(0, 0, "a"), node_gave(0, 1, "b"))
    one = (failed(0, 0), node_gave(0, 1, "b"))
    assert spawn(specs).read(both) == ["a", "b"]
    bad, good = spawn(specs, join="all_settled").read(one)
    assert isinstance(bad, EffectFailed)
    assert good == "b"
    assert spawn(specs, join="first").read(one) == "b"
    assert spawn(specs, join="first").transition.spawn.join == policy_pb2.JOIN_POLICY_FIRST
    with pytest.raises(EffectFailed):
        spawn(specs).read(one)


def test_spawned_values_are_read_as_types():
    """In each join; a failure is one as before."""
    specs = [program("p", 1), program("p", 2)]
    verdict = node_gave(0, 0, {"ok": True})
    assert spawn(specs, returning=Verdict).read((verdict,)) == [Verdict(ok=True)]
    assert spawn(specs, join="first", returning=Verdict).read((failed(0, 0), verdict)) == Verdict(
        ok=True
    )
    good, bad = spawn(specs, join="all_settled", returning=Verdict).read((verdict, failed(0, 1)))
    assert (good, type(bad)) == (Verdict(ok=True), EffectFailed)


def test_settled_lets_other_errors_through():
    """Only what the work itself said is a value."""
    with pytest.raises(ZeroDivisionError):
        settled(node_gave(0, 0, 1), lambda _: 1 // 0)


def test_a_question_has_a_schema_a_time_and_a_default():
    """All that a Suspend for a person can say."""
    suspend = ask("ok?", {"type": "boolean"}, timeout="1h", default_answer=None).transition.suspend
    assert suspend.reason.human.prompt == "ok?"
    assert suspend.timeout.seconds == 3600
    assert suspend.default_answer.json == "null"
    assert not ask("ok?").transition.suspend.HasField("default_answer")


def test_a_model_as_schema_is_what_the_answer_comes_as():
    """The same type says what is asked and what is given."""
    pause = ask("ok?", Verdict)
    assert '"ok"' in pause.transition.suspend.reason.human.json_schema
    assert pause.read((answered(0, {"ok": True}),)) == Verdict(ok=True)


def test_a_default_without_a_time_is_refused():
    """It would never be given."""
    with pytest.raises(TypeError, match="timeout"):
        ask("ok?", default_answer=True)


def test_tokens_and_signals():
    """One value, or as many as were waited for."""
    assert external("t1").transition.suspend.reason.external.token == "t1"
    wanted = signal("go", correlation="7", count=2)
    assert wanted.transition.suspend.reason.signal.correlation == "7"
    assert wanted.read((answered(0, "a", "b"),)) == ["a", "b"]
    with pytest.raises(EffectFailed, match="BROKEN"):
        external("t1").read((failed(0, 0),))
