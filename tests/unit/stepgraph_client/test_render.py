from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1 import event_pb2 as pb
from stepgraph.v1.event_pb2 import EdgeOutcome, EdgeVerdict, RunEvent, TransientEvent
from stepgraph.v1.failure_pb2 import Failure
from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptOption
from stepgraph.v1.run_pb2 import GraphVersion, RunStatus
from stepgraph.v1.state_pb2 import GraphExecutionResult
from stepgraph.v1.task_pb2 import Requirement, TaskAssignment, TaskProgress, TaskResult
from stepgraph.v1.value_pb2 import Value
from stepgraph_client import answers, render
from stepgraph_client.lines import Line, Piece, Tone
from stepgraph_client.render import (
    Narrator,
    question_lines,
)
from tests.support.fake_server import unknown_event

TASK = "1/think/t0/e0"
FAILURE = Failure(code="BAD", message="it broke", source="act")
FOLLOWED = EdgeOutcome(edge_id="think.act", verdict=EdgeVerdict.EDGE_VERDICT_FOLLOWED)
NOT_HELD = EdgeOutcome(edge_id="think.done", verdict=EdgeVerdict.EDGE_VERDICT_NOT_HELD)


def told(narrator: Narrator, *events: RunEvent | TransientEvent) -> list[str]:
    return [each.text for event in events for each in narrator.tell(event)]


def said(**kind: object) -> list[str]:
    return told(Narrator(), RunEvent(time=Timestamp(seconds=100), **kind))


def scheduled(**more: object) -> RunEvent:
    task = pb.TaskScheduled(task_id=TASK, label="llm m", **more)
    return RunEvent(task_scheduled=task)


def shown(text: str, kind: str = "text", attempt: int = 1) -> TransientEvent:
    progress = TaskProgress()
    getattr(progress, kind).text = text
    return TransientEvent(task_id=TASK, attempt=attempt, progress=progress)


EVERY = {
    "run_started": (
        pb.RunStarted(
            run_id="r",
            graph=GraphVersion(name="g", version=2),
            labels={"a": "b"},
            delay_until_time=Timestamp(seconds=5),
        ),
        ["run r of g@2 (a=b)", "  it begins at 1970-01-01 00:00:05Z"],
    ),
    "superstep_started": (pb.SuperstepStarted(superstep=2, nodes=["a", "b"]), ["2. a, b"]),
    "node_skipped": (
        pb.NodeSkipped(node_id="a", reason=pb.SKIP_REASON_TERMINAL_REACHED),
        ["  a is left out: the run is at its end"],
    ),
    "tools_offered": (
        pb.ToolsOffered(tools=[{"name": "x"}, {"name": "y"}]),
        ["  offers the tools x, y"],
    ),
    "task_scheduled": (
        pb.TaskScheduled(task_id=TASK, requirement=Requirement(llm=Requirement.Llm(model="m"))),
        ["  think · model m waits to be given out"],
    ),
    "task_assigned": (
        pb.TaskAssigned(task_id=TASK, assignment=TaskAssignment(attempt=2, executor_id="e")),
        ["  think → e (attempt 2)"],
    ),
    "task_completed": (
        pb.TaskCompleted(
            task_id=TASK, result=TaskResult(condition=TaskResult.Condition(holds=True))
        ),
        ["  think: holds"],
    ),
    "task_failed": (
        pb.TaskFailed(task_id=TASK, failure=FAILURE, tries=1, retry_time=Timestamp(seconds=102)),
        ["  think failed: BAD: it broke (from act); try 2 in 2 s"],
    ),
    "task_lost": (
        pb.TaskLost(task_id=TASK, reason=pb.TASK_LOSS_REASON_REJECTED, message="too big"),
        ["  think was lost: its executor rejected it: too big; it is given to another"],
    ),
    "task_cancelled": (
        pb.TaskCancelled(task_id=TASK, reason="enough"),
        ["  think was cancelled: enough"],
    ),
    "task_unclaimed": (
        pb.TaskUnclaimed(
            task_id=TASK,
            requirement=Requirement(tool=Requirement.Tool(name="x")),
            selector={"gpu": "yes"},
            queue_limit_time=Timestamp(seconds=600),
        ),
        [
            "  nobody can take think: start an executor for tool x with the labels gpu=yes (it fails at 1970-01-01 00:10:00Z)"
        ],
    ),
    "node_completed": (
        pb.NodeCompleted(activation_id="1/think", node_id="think", edges=[FOLLOWED, NOT_HELD]),
        ["  think is done, follows think.act"],
    ),
    "node_failed": (
        pb.NodeFailed(node_id="think", failure=FAILURE),
        ["  think failed: BAD: it broke (from act)"],
    ),
    "node_cancelled": (
        pb.NodeCancelled(activation_id="1/think", reason="collateral of act"),
        ["  think was stopped: collateral of act"],
    ),
    "edges_evaluated": (
        pb.EdgesEvaluated(activation_id="1/think", edges=[NOT_HELD]),
        ["  think was decided, no edge is followed"],
    ),
    "interrupt_opened": (
        pb.InterruptOpened(question=Interrupt(interrupt_id="q", node_id="ask")),
        [
            "? ask: waits for something that this version does not know",
            "  stepgraph answer q --proceed",
            "  stepgraph answer q --revise 'what should change'",
            "  stepgraph answer q --abort 'why'",
        ],
    ),
    "interrupt_answered": (
        pb.InterruptAnswered(answer=answers.choose("yes"), answered_by="ada"),
        ["  answered by ada: choose yes"],
    ),
    "interrupt_closed": (
        pb.InterruptClosed(interrupt_id="q", reason="run ended"),
        ["  question q is closed: run ended"],
    ),
    "variable_overwritten": (
        pb.VariableOverwritten(variable="x", node_ids=["a", "b"]),
        ["  a, b all wrote x; the last one's value was kept"],
    ),
    "signal_received": (
        pb.SignalReceived(name="go", payload=Value(text="now")),
        ["  signal go: now"],
    ),
    "child_started": (
        pb.ChildStarted(task_id="1/sub", run_id="c", graph=GraphVersion(name="g", version=1)),
        ["  sub runs g@1 as c; see `stepgraph runs watch c`"],
    ),
    "child_status_changed": (
        pb.ChildStatusChanged(task_id="1/sub", run_id="c", status=RunStatus.RUN_STATUS_SUSPENDED),
        ["  sub: c waits"],
    ),
    "graphs_resolved": (pb.GraphsResolved(graphs=[{"reference": "g"}]), []),
    "limit_neared": (
        pb.LimitNeared(limit_name="journal_bytes", used=8000, maximum=10000),
        ["  near a limit: 8,000 of 10,000 journal bytes"],
    ),
    "run_paused": (
        pb.RunPaused(reason="lunch"),
        ["paused: lunch; go on with `stepgraph runs unpause `"],
    ),
    "run_unpaused": (pb.RunUnpaused(), ["goes on"]),
    "run_stopping": (
        pb.RunStopping(outcome=RunStatus.RUN_STATUS_CANCELLED, failure=Failure(code="CANCELLED")),
        ["is being cancelled: CANCELLED"],
    ),
    "run_forked": (
        pb.RunForked(run_id="n", origin={"run_id": "r", "sequence": 5}),
        ["run n, forked from r after event 5"],
    ),
    "run_completed": (
        pb.RunCompleted(
            result=GraphExecutionResult(
                terminal_node="done", iterations=1, output=Value(text="a\nb")
            )
        ),
        ["completed at done after 1 superstep", "a", "b"],
    ),
    "run_failed": (
        pb.RunFailed(
            failure=Failure(code="X", causes=[FAILURE]), result=GraphExecutionResult(iterations=2)
        ),
        ["failed after 2 supersteps: X", "  because of BAD: it broke (from act)"],
    ),
    "run_cancelled": (pb.RunCancelled(failure=Failure(code="CANCELLED")), ["cancelled: CANCELLED"]),
}


@pytest.mark.parametrize("kind", EVERY)
def test_each_kind_of_event_is_told(kind) -> None:
    message, lines = EVERY[kind]
    assert said(**{kind: message}) == lines


@pytest.mark.parametrize("kind", EVERY)
def test_a_summary_without_payloads_is_told_as_well(kind) -> None:
    event = RunEvent()
    getattr(event, kind).SetInParent()
    told(Narrator(), event)


def test_every_kind_of_event_of_the_schema_is_known() -> None:
    kinds = {each.name for each in RunEvent.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert set(EVERY) == kinds == set(render._TELLERS)


def test_an_event_of_a_newer_server_is_passed_over() -> None:
    assert told(Narrator(), unknown_event(), TransientEvent()) == []


def test_a_task_keeps_its_label_until_it_is_over() -> None:
    narrator = Narrator()
    assignment = TaskAssignment(attempt=1, executor_id="e")
    done = RunEvent(task_completed=pb.TaskCompleted(task_id=TASK, result=TaskResult()))
    assert told(narrator, scheduled(assignment=assignment), done) == [
        "  think · llm m → e",
        "  think · llm m: done",
    ]
    assert narrator._labels == {}


def test_a_task_that_is_given_up_says_after_how_many_tries() -> None:
    failed = RunEvent(task_failed=pb.TaskFailed(task_id=TASK, failure=FAILURE, tries=3))
    (line,) = Narrator().tell(failed)
    assert line.text.endswith("given up after 3 tries")
    assert line.tone is Tone.BAD


def test_spawned_work_is_told_by_its_place() -> None:
    task = pb.TaskAssigned(task_id="2/plan/t0/s3/t0/e0", assignment=TaskAssignment(executor_id="e"))
    assert said(task_assigned=task) == ["  plan/s3 → e"]


def test_what_was_streamed_is_not_said_again() -> None:
    result = TaskResult()
    result.llm.message.content.add().text.text = "Sunny."
    result.llm.usage.input_tokens = 5
    done = RunEvent(task_completed=pb.TaskCompleted(task_id=TASK, attempt=1, result=result))
    narrator = Narrator()
    told(narrator, shown("Sun"))
    assert told(narrator, done) == ["  think: 5 + 0 tokens"]
    assert told(narrator, done) == ["  think: Sunny. (5 + 0 tokens)"]


def test_calls_are_said_even_if_text_was_streamed() -> None:
    result = TaskResult()
    result.llm.message.content.add().tool_call.name = "search"
    done = RunEvent(task_completed=pb.TaskCompleted(task_id=TASK, attempt=1, result=result))
    narrator = Narrator()
    told(narrator, shown("Let me look."))
    assert told(narrator, done) == ["  think: wants search()"]


def test_all_that_attempts_show_is_told() -> None:
    narrator = Narrator()
    args = TaskProgress(tool_args=TaskProgress.ToolArgsDelta(call_index=0, tool_name="s", args="{"))
    custom = TaskProgress(custom=TaskProgress.Custom(value=Value(text="half")))
    so_far = TransientEvent.TextSoFar(text="So far", thinking="Hm")
    events = [
        TransientEvent(task_id=TASK, attempt=1, text_so_far=so_far),
        shown("hm", "thinking"),
        TransientEvent(task_id=TASK, attempt=1, progress=args),
        TransientEvent(task_id=TASK, attempt=1, progress=custom),
        TransientEvent(task_id=TASK, progress=TaskProgress()),
        TransientEvent(task_id=TASK, progress_dropped=TransientEvent.ProgressDropped()),
        TransientEvent(task_id=TASK, attempt_discarded=TransientEvent.AttemptDiscarded()),
    ]
    assert told(narrator, *events) == [
        "Hm",
        "So far",
        "hm",
        "s {",
        "  think: half",
        "  … some of it was not shown",
        "  think: what was shown of it does not count; it starts anew",
    ]
    assert narrator._shown == {}


def test_what_comes_again_after_a_lost_connection_is_told_once() -> None:
    narrator = Narrator()
    so_far = TransientEvent.TextSoFar(text="It is sunny", thinking="hm, well")
    again = TransientEvent(task_id=TASK, attempt=1, text_so_far=so_far)
    assert told(narrator, shown("hm", "thinking"), shown("It is"), again, shown(".")) == [
        "hm",
        "It is",
        ", well",
        " sunny",
        ".",
    ]
    assert told(narrator, again) == []


def test_a_new_attempt_is_told_from_its_beginning() -> None:
    failed = RunEvent(task_failed=pb.TaskFailed(task_id=TASK, attempt=1, failure=FAILURE, tries=1))
    narrator = Narrator()
    told(narrator, shown("It is"), failed)
    assert narrator._shown == {}
    assert told(narrator, shown("It", attempt=2)) == ["It"]


def test_a_question_comes_with_the_exact_commands_that_answer_it() -> None:
    question = Interrupt(
        interrupt_id="q-1",
        node_id="ask",
        options=[InterruptOption(id="yes", label="Do it"), InterruptOption(id="no", label="no")],
        deadline_time=Timestamp(seconds=60),
        default_answer=answers.choose("no"),
    )
    question.reason.human.prompt = "Deploy?"
    question.tool.tool_name = "deploy"
    question.tool.args = '{"to": "prod"}'
    command = "stepgraph --server here:1"
    assert [line.text for line in question_lines(question, command)] == [
        "? ask: Deploy?",
        '  about deploy({"to": "prod"})',
        "  open until 1970-01-01 00:01:00Z, then: choose no",
        "  stepgraph --server here:1 answer q-1 --choose yes   # Do it",
        "  stepgraph --server here:1 answer q-1 --choose no",
        "  stepgraph --server here:1 answer q-1 --revise 'what should change'",
        "  stepgraph --server here:1 answer q-1 --abort 'why'",
    ]


def test_what_can_be_answered_depends_on_the_question() -> None:
    with_schema = Interrupt(answer_schema="{}", deadline_time=Timestamp(seconds=1))
    texts = [line.text for line in question_lines(with_schema)]
    assert "then the node fails" in texts[1]
    assert texts[2].endswith("--with NAME=VALUE")
    external = Interrupt()
    external.reason.external.token = "t"
    assert render.answer_options(external) == ("--reply TEXT",)
    program = Interrupt(takes_reply=True, answer_schema='{"type": "boolean"}')
    assert render.answer_options(program) == ("--reply-json JSON", "--failed CODE")
    for schema in ("", "{}", '{"type": "string"}'):
        program.answer_schema = schema
        assert render.answer_options(program) == ("--reply TEXT", "--failed CODE")
    signal = Interrupt()
    signal.reason.signal.name = "go"
    assert render.answer_options(signal) == ()


def test_a_wait_for_a_signal_comes_with_the_command_that_sends_it() -> None:
    """It is the run that gets it; an answer would be refused."""
    wait = Interrupt(interrupt_id="q", node_id="wait", run_id="r")
    wait.reason.signal.name = "paid"
    wait.reason.signal.correlation = "order 7"
    assert [line.text for line in question_lines(wait)] == [
        "? wait: waits for the signal paid",
        "  stepgraph runs signal r paid --correlation 'order 7'",
    ]


def test_a_sleep_waits_for_time_and_not_for_an_executor() -> None:
    slept = pb.TaskScheduled(task_id=TASK, label="sleep 5 s", due_time=Timestamp(seconds=5))
    over = pb.TaskCompleted(task_id=TASK)
    lines = told(Narrator(), RunEvent(task_scheduled=slept), RunEvent(task_completed=over))
    assert lines == [
        "  think · sleep 5 s, over at 1970-01-01 00:00:05Z",
        "  think · sleep 5 s: done",
    ]


def test_lines_and_pieces_are_values() -> None:
    assert Line(text="a") == Line(text="a", tone=Tone.PLAIN)
    assert Piece(stream="s", text="a") != Piece(stream="s", text="b")


def test_the_later_lines_of_a_question_are_indented() -> None:
    """What a person is asked stands out as one block, above the commands."""
    question = Interrupt(interrupt_id="q", node_id="ask")
    question.reason.human.prompt = "Apply this?\n\n-a\n+b"
    assert [line.text for line in question_lines(question)][:4] == [
        "? ask: Apply this?",
        "",
        "    -a",
        "    +b",
    ]


def test_a_function_that_raised_is_told_with_the_edge_that_would_take_it() -> None:
    """The code of whatever is raised is one that its author has never seen."""
    raised = Failure(code="EXECUTOR_ERROR", message="ValueError: no", source="host")
    assert said(node_failed=pb.NodeFailed(node_id="look", failure=raised)) == [
        "  look failed: EXECUTOR_ERROR: ValueError: no (from host)",
        "  an edge with `when: {error_occurred: [EXECUTOR_ERROR]}` would go on from here",
    ]
    assert len(said(node_failed=pb.NodeFailed(node_id="x", failure=raised, edges=[FOLLOWED]))) == 1
