from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1 import event_pb2 as pb
from stepgraph.v1.conversation_pb2 import Message
from stepgraph.v1.run_service_pb2 import GetRunStateResponse, Wait
from stepgraph_client.command.calling import Settings
from stepgraph_client.command.examining import _print_wait
from stepgraph_client.command.output import Output
from tests.support.fake_server import run_event


@pytest.fixture
def one(server):
    return server.add_run("r", run_event(run_paused=pb.RunPaused(reason="lunch")))


@pytest.fixture
def walked(server):
    """A run with a failure, a minute after it began."""
    failed = pb.NodeFailed(activation_id="1/think", node_id="think")
    failed.failure.code = "BAD"
    question = pb.InterruptOpened()
    question.question.node_id = "ask"
    return server.add_run(
        "r",
        run_event(
            time=Timestamp(seconds=100),
            superstep_started=pb.SuperstepStarted(superstep=1, nodes=["think", "look"]),
        ),
        run_event(
            time=Timestamp(seconds=101), task_completed=pb.TaskCompleted(task_id="1/look/t0/e0")
        ),
        run_event(time=Timestamp(seconds=160), node_failed=failed),
        run_event(time=Timestamp(seconds=161), interrupt_opened=question),
    )


def test_a_state_is_shown_as_variables_and_messages(run, server, one) -> None:
    page = GetRunStateResponse(sequence=7)
    page.state.variables["city"].text = "Oslo"
    message = Message(role=2)
    message.content.add().text.text = "hello"
    page.state.conversation.messages.append(message)
    server.states["r"] = [page]
    assert run("runs", "state", "r").out == "after event 7\ncity  Oslo\nuser  hello\n"
    document = run("runs", "state", "r", "--at", "7", "--json").json
    assert document["state"]["variables"] == {"city": {"text": "Oslo"}}
    assert server.requests["GetRunState"][1].sequence == 7


def test_what_a_run_waits_for_is_explained(run, one) -> None:
    assert "needs  model m: 0 connected" in run("runs", "explain", "r").out
    assert run("runs", "explain", "r", "--json").json["waits"]
    one.complete()
    assert "waits for nothing" in run("runs", "explain", "r").out


def test_one_variable_is_shown_whole(run, server, one) -> None:
    page = GetRunStateResponse(sequence=7)
    page.state.variables["long"].text = "x" * 500
    page.state.last_error.code = "BAD"
    page.state.parsed_decision.tool_calls.count = 1
    page.activations.add(node_id="ask", ended=True)
    server.states["r"] = [page]
    out = run("runs", "state", "r").out
    assert "(last error)  BAD" in out
    assert "(decision)    tool calls" in out
    assert "(live)        ask, ended" in out
    assert run("runs", "state", "r", "--var", "long").out == "x" * 500 + "\n"
    assert run("runs", "state", "r", "--var", "long", "--json").json == {"text": "x" * 500}
    ended = run("runs", "state", "r", "--var", "short")
    assert ended.code == 3
    assert "there is no variable 'short' after event 7; there are: long" in ended.err


def test_a_history_lists_events_with_what_others_need_of_them(run, walked) -> None:
    lines = run("runs", "history", "r").out.splitlines()
    assert lines[0].split() == ["EVENT", "AFTER", "KIND", "WHAT"]
    assert lines[1].split() == ["1", "0", "s", "superstep", "started", "1.", "think,", "look"]
    assert lines[3].split()[:5] == ["3", "1", "min", "node", "failed"]
    assert run("runs", "history", "r", "-o", "ids", "--limit", "2").out == "1\n2\n"
    assert run("runs", "history", "r", "--json", "--after", "2").json[0]["sequence"] == 3


@pytest.mark.parametrize(
    ("words", "sequences"),
    [
        (("--kind", "node_failed"), "3"),
        (("--kind", "node_failed", "--kind", "task_completed"), "2 3"),
        (("--node", "think"), "1 3"),
        (("--node", "look"), "1 2"),
        (("--node", "ask"), "4"),
        (("--node", "nope"), ""),
    ],
)
def test_a_history_is_filtered(run, walked, words, sequences) -> None:
    assert run("runs", "history", "r", *words, "-o", "ids").out.split() == sequences.split()


def test_a_kind_that_does_not_exist_is_typed_wrongly(run, walked) -> None:
    assert run("runs", "history", "r", "--kind", "walked").code == 2
    assert "no events of r fit" in run("runs", "history", "r", "--node", "nope").err


def test_what_a_run_itself_waits_for_names_no_task(capsys) -> None:
    """A pause, say, or a start that is delayed."""
    _print_wait(Wait(description="is paused"), Settings(), Output())
    assert capsys.readouterr().out == "is paused\n"


def test_an_event_is_a_number_that_there_can_be(run, one) -> None:
    """0 would mean the last one, which nobody means who types it."""
    assert "0 is not in the range 1<=x<=4294967295" in run("runs", "state", "r", "--at", "0").err
    assert run("runs", "history", "r", "--after", str(2**32)).code == 2


def test_a_question_that_is_waited_for_comes_with_how_to_see_it(capsys) -> None:
    wait = Wait(task_id="4/ask", description="waits for a person")
    wait.question.interrupt_id = "q"
    wait.question.reason.human.prompt = "Deploy?"
    wait.due_time.seconds = 60
    wait.last_failure.code = "BAD"
    _print_wait(wait, Settings(), Output())
    assert capsys.readouterr().out.splitlines() == [
        "4/ask: waits for a person",
        "  until         1970-01-01 00:01:00Z",
        "  asks          Deploy?; see `stepgraph interrupts get q`",
        "  last failure  BAD",
    ]
