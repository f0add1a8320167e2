"""Customer support over several runs: who is in charge is a paradigm, and what changes something needs a person."""

from __future__ import annotations

from stepgraph_client import abort, proceed, revise
from stepgraph_testing import call, calls

TOOLS = ("search_flights", "update_ticket", "cancel_ticket", "lookup_policy", "search_cars")


def hand_to(paradigm):
    return calls(call("switch_paradigm", paradigm=paradigm))


def prompts(run):
    """Return how each prompt of the assistant begins."""
    return [request.system_prompt.split(".")[0] for request in run.asked["assistant"]]


def offered(run, number):
    return sorted(tool.name for tool in run.asked["assistant"][number].tools)


async def begin(stage, replies, **start):
    tools = {name: f"result of {name}" for name in TOOLS}
    used = {"fetch_user": ["Ada"], "assistant": replies, **tools}
    return await stage.begin("support", used, **{"tools": TOOLS, "messages": ["Hi"], **start})


async def play(stage, replies, **start):
    return await (await begin(stage, replies, **start)).over()


async def test_the_primary_assistant_answers_what_is_simple(stage):
    lookup = calls(call("lookup_policy", about="bags"))
    run = await play(stage, [lookup, "One bag."])

    assert run.path == [
        *("fetch_user", "primary", "assistant", "tools", "assistant", "done"),
    ]
    assert offered(run, 0) == ["lookup_policy", "search_cars", "search_flights", "switch_paradigm"]
    assert "The customer: Ada" in run.asked["assistant"][0].system_prompt
    assert run.conversation[-1] == "assistant: One bag."


async def test_a_specialist_takes_over_with_tools_of_its_own_and_hands_back(stage):
    search = calls(call("search_flights", to="Basel"))
    run = await play(stage, [hand_to("flights"), search, hand_to("primary"), "Anything else?"])

    assert run.path == [
        *("fetch_user", "primary", "assistant", "hand_over", "assistant", "tools"),
        *("assistant", "hand_over", "assistant", "done"),
    ]
    primary, flights = "You help customers of an airline", "You change and cancel flights"
    assert prompts(run) == [primary, flights, flights, primary]
    assert offered(run, 1) == [
        "cancel_ticket",
        "search_flights",
        "switch_paradigm",
        "update_ticket",
    ]
    assert "tool: switched to flights" in run.conversation


async def test_who_is_in_charge_at_the_end_is_in_charge_when_the_chat_goes_on(stage):
    first = await play(stage, [hand_to("flights"), "To which day?"])
    second = await play(stage, ["It is done."], messages=["Friday"], continue_from=first.run_id)

    assert second.path == ["fetch_user", "assistant", "done"]
    assert prompts(second) == ["You change and cancel flights"]
    assert second.conversation[-3:] == [
        *("assistant: To which day?", "user: Friday", "assistant: It is done."),
    ]


BOTH = calls(call("search_flights", to="Basel"), call("update_ticket", day="Friday"))


async def test_a_safe_call_is_not_held_up_by_a_sensitive_one_beside_it(stage):
    live = await begin(stage, [hand_to("flights"), BOTH, "Changed."])
    question = await live.question()

    assert question.tool.tool_name == "update_ticket"
    await live.called("search_flights")
    await live.client.answer(question.interrupt_id, proceed())
    run = await live.over()

    assert run.counts["update_ticket"] == 1
    assert run.conversation[-3:] == [
        *("tool: result of search_flights", "tool: result of update_ticket", "assistant: Changed."),
    ]


async def test_what_a_person_says_against_it_is_what_the_model_sees(stage):
    live = await begin(stage, [hand_to("flights"), BOTH, "On which day, then?"])
    await live.answer(revise("Not on a Friday."))
    run = await live.over()

    assert "update_ticket" not in run.counts
    assert any("Not on a Friday." in message for message in run.conversation)
    assert (run.status, run.end) == ("COMPLETED", "done")


async def test_an_abort_ends_the_run_and_nothing_is_changed(stage):
    live = await begin(stage, [hand_to("flights"), BOTH])
    await live.answer(abort("no"))
    run = await live.over()

    assert run.status == "CANCELLED"
    assert "update_ticket" not in run.counts


async def test_a_tool_of_somebody_else_is_no_tool_that_it_may_call(stage):
    run = await play(stage, [calls(call("cancel_ticket", id=1)), "I can't do that."])

    assert "cancel_ticket" not in run.counts
    assert run.path[-3:] == ["tools", "assistant", "done"]
