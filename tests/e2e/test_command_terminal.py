"""The command line at a real terminal, narrow and wide, with and without colour, and piped.

The command is a process at a pseudo-terminal; what it writes goes through a terminal emulator, and the tests look at the screen.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from stepgraph.v1 import event_pb2 as pb
from stepgraph.v1.event_pb2 import TransientEvent
from stepgraph.v1.executor_service_pb2 import Capability, Executor
from stepgraph.v1.interrupt_pb2 import Interrupt, InterruptStatus
from stepgraph.v1.run_pb2 import GraphVersion
from stepgraph.v1.task_pb2 import TaskProgress
from stepgraph_client.files import parse_graph
from tests.support.e2e_processes import STEPGRAPH
from tests.support.fake_server import FakeServer, run_event
from tests.support.terminal import Terminal

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

ID = "01a22d92-39e4-75f6-8d8a-af387902320b"
TASK = "1/think/t0/e0"
ESCAPE = re.compile(rb"\x1b\[")
COLOUR = re.compile(rb"\x1b\[[0-9;]*3[0-9][0-9;]*m")
WIDTHS = [40, 60, 160, 200]


def now() -> Timestamp:
    stamp = Timestamp()
    stamp.GetCurrentTime()
    return stamp


@pytest.fixture
def server():
    fake = FakeServer()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def terminal(server):
    def at(*words: str, **more) -> Terminal:
        return Terminal(*words, STEPGRAPH_SERVER=server.address, **more)

    return at


@pytest.fixture
def piped(server):
    def call(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [STEPGRAPH, *words],
            capture_output=True,
            check=False,
            timeout=30,
            env={"PATH": "/bin", "STEPGRAPH_SERVER": server.address, **environment},
        )

    return call


@pytest.fixture
def one(server):
    return server.add_run(
        ID,
        run_event(
            time=now(),
            run_started=pb.RunStarted(run_id=ID, graph=GraphVersion(name="restock", version=1)),
        ),
        run_event(time=now(), superstep_started=pb.SuperstepStarted(superstep=1, nodes=["think"])),
        graph=GraphVersion(name="restock", version=1),
        create_time=Timestamp(seconds=1769817600),
        open_interrupts=1,
    )


def scheduled() -> pb.RunEvent:
    task = pb.TaskScheduled(task_id=TASK, label="llm claude")
    task.assignment.executor_id = "shop"
    return run_event(time=now(), task_scheduled=task)


def text(piece: str) -> TransientEvent:
    progress = TaskProgress(text=TaskProgress.TextDelta(text=piece))
    return TransientEvent(task_id=TASK, attempt=1, progress=progress)


def question() -> Interrupt:
    asked = Interrupt(
        interrupt_id="q-0123456789ab",
        run_id=ID,
        node_id="approve",
        status=InterruptStatus.INTERRUPT_STATUS_OPEN,
        open_time=Timestamp(seconds=1769817600),
    )
    asked.reason.human.prompt = "There are 3 left. Order 100 more?"
    return asked


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_live_watch_shows_where_the_run_is_and_leaves_its_lines(terminal, one, columns) -> None:
    with terminal("runs", "watch", ID, columns=columns) as screen:
        screen.shows("── running · superstep 1")
        one.add(scheduled(), text("It is \nsun"))
        screen.until(lambda seen: any("at shop" in line for line in seen.screen))
        screen.shows("│ sun")
        one.add(text("ny."))
        screen.shows("│ sunny.")
        one.add(run_event(task_completed=pb.TaskCompleted(task_id=TASK, attempt=1)))
        one.complete("sunny")
        assert screen.ended() == 0
        lines = screen.everything
    assert [line for line in lines if "──" in line or "at shop" in line] == []
    assert "  │ It is" in lines
    assert "completed after 1 superstep" in lines[-2]
    assert lines[-1] == "sunny"


@pytest.mark.parametrize("columns", WIDTHS)
def test_an_id_and_a_command_are_never_broken(terminal, one, columns) -> None:
    """What is broken is broken as a shell has it, so that it can be copied from the screen."""
    opened = run_event()
    opened.interrupt_opened.question.CopyFrom(question())
    one.add(opened)
    with terminal("runs", "watch", ID, columns=columns) as screen:
        screen.shows("waits for an answer")
        screen.interrupt()
        assert screen.ended() == 130
        lines = screen.everything
    assert any(ID in line for line in lines)
    whole = re.sub(r" \\\n *", " ", "\n".join(lines))
    assert "  stepgraph answer q-0123456789ab --proceed" in whole.splitlines()
    assert "  stepgraph answer q-0123456789ab --revise 'what should change'" in whole.splitlines()
    assert f"stepgraph runs watch {ID} --after 3" in whole
    assert f"stepgraph runs cancel {ID}" in whole
    assert not any("──" in line for line in lines), "the view is gone, whole"


@pytest.mark.parametrize("columns", [40, 160])
def test_lists_fit_the_terminal_with_their_ids_whole(terminal, server, one, columns) -> None:
    server.questions["q"] = question()
    server.executors = [
        Executor(
            executor_id="shop-0123456789abcdef",
            connected=True,
            max_in_flight=8,
            capabilities=[Capability(agent=Capability.Agent(kind=f"kind{n}")) for n in range(9)],
        )
    ]
    for words, name in (
        (("runs", "list"), ID),
        (("executors",), "shop-0123456789abcdef"),
        (("interrupts",), ID),
        (("config",), "STEPGRAPH_NAMESPACE"),
    ):
        with terminal(*words, columns=columns) as screen:
            assert screen.ended() == 0
            assert any(name in line for line in screen.everything), words
            # A line that fills the terminal was wrapped by it, or would be.
            assert all(len(line) <= columns for line in screen.everything)
            assert not any(line[:1] in "-,;" for line in screen.everything if line), words


def test_a_graph_is_drawn_with_the_path_of_a_run(terminal, server, one) -> None:
    definition = "name: restock\nstart: think\nnodes:\n  - {id: think, assign: {}}\n"
    server.graphs[""] = server.graphs["restock"] = [parse_graph(definition).graph]
    with terminal("graphs", "show", "--run", ID, columns=60) as screen:
        assert screen.ended() == 0
        assert "▶ think  assign  [starts]" in screen.everything
        assert COLOUR.search(screen.written)


@pytest.mark.parametrize(
    ("words", "environment"),
    [((), {"NO_COLOR": "1"}), (("--no-color",), {}), ((), {"STEPGRAPH_COLOR": "never"})],
    ids=["NO_COLOR", "--no-color", "STEPGRAPH_COLOR"],
)
@pytest.mark.parametrize("columns", [60, 160])
def test_without_colour_there_are_plain_lines(terminal, one, words, environment, columns) -> None:
    """Nothing is drawn anew, and nothing is coloured."""
    one.add(scheduled())
    one.complete()
    with terminal(*words, "runs", "watch", ID, columns=columns, **environment) as screen:
        assert screen.ended() == 0
        assert "completed after 1 superstep" in screen.text
        assert not COLOUR.search(screen.written)
        assert b"\x1b[2K" not in screen.written


def test_a_dumb_terminal_is_not_drawn_on(terminal, one) -> None:
    one.complete()
    with terminal("runs", "watch", ID, TERM="dumb") as screen:
        assert screen.ended() == 0
        assert not ESCAPE.search(screen.written)


def test_what_is_piped_has_no_escapes_and_no_end_cut_off(piped, server, one) -> None:
    one.run.labels["long"] = "x" * 300
    one.complete("y" * 300)
    for words, long_text in (
        (("runs", "watch", ID), "y" * 300),
        (("runs", "get", ID), "x" * 300),
        (("runs", "list"), ID),
    ):
        ended = piped(*words, COLUMNS="40")
        assert ended.returncode == 0
        assert long_text in ended.stdout.decode()
        assert not ESCAPE.search(ended.stdout + ended.stderr)


def test_colour_may_be_wished_for_where_there_is_no_terminal(piped, one) -> None:
    """For whoever pages it."""
    assert ESCAPE.search(piped("--color", "always", "runs", "list").stdout)


def test_what_is_watched_goes_out_a_line_at_a_time(server, one) -> None:
    """A program that reads the lines of a watch has each when it happens."""
    with subprocess.Popen(
        [STEPGRAPH, "--server", server.address, "runs", "watch", ID, "--json"],
        stdout=subprocess.PIPE,
        env={"PATH": "/bin"},
    ) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        one.complete()
        rest = [json.loads(line) for line in process.stdout]
    assert "run_started" in first
    assert "run_completed" in rest[-1]
    assert process.returncode == 0


def test_a_reader_that_goes_away_leaves_no_traceback(server, one) -> None:
    """And no exit code that says something of a run."""
    with subprocess.Popen(
        [STEPGRAPH, "--server", server.address, "runs", "watch", ID],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/bin"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        one.add(scheduled())
        one.complete()
        said = process.stderr.read()
    assert said == b""
    assert process.returncode == 141


def test_a_watch_that_is_terminated_gives_the_terminal_back(terminal, one) -> None:
    """With its cursor, and without what was drawn; as `timeout` ends it, say."""
    with terminal("runs", "watch", ID) as screen:
        screen.shows("── running")
        screen.signal(signal.SIGTERM)
        assert screen.ended() == 143
        assert not any("──" in line for line in screen.everything)
        assert screen.written.rfind(b"\x1b[?25h") > screen.written.rfind(b"\x1b[?25l")


def test_a_person_is_asked_for_an_answer(terminal, server, one) -> None:
    server.questions["q-0123456789ab"] = question()
    with terminal("answer", "q-0123456789ab", columns=60) as screen:
        screen.shows("answer (proceed, revise, abort):")
        screen.type("revise\r")
        screen.shows("what should change:")
        screen.type("only 50\r")
        assert screen.ended() == 0
        assert "revise: only 50" in screen.text
    assert server.requests["AnswerInterrupt"][0].answer.revise.feedback == "only 50"


def test_a_server_that_is_lost_is_told_below_the_lines(terminal, one) -> None:
    """The view goes on where it was when it is back."""
    one.cuts.extend([2])
    with terminal("runs", "watch", ID, columns=60) as screen:
        screen.shows("1. think")
        one.add(scheduled())
        screen.shows("at shop")
        one.complete()
        assert screen.ended() == 0
        assert screen.everything.count("1. think") == 1


def test_a_terminal_is_not_given_a_stored_value_that_would_steer_it(terminal, server) -> None:
    ended = subprocess.run(
        [STEPGRAPH, "--server", server.address, "values", "put", "-", "-o", "ids"],
        input=b"\x1b[2J",
        capture_output=True,
        check=True,
        timeout=30,
        env={"PATH": "/bin"},
    )
    digest = ended.stdout.decode().strip()
    with terminal("values", "get", digest, columns=160) as screen:
        assert screen.ended() == 3
        assert "a terminal can't show; give --to FILE" in screen.text


@pytest.mark.parametrize("columns", [60, 160])
def test_the_doctor_says_what_to_do(terminal, columns) -> None:
    with terminal("doctor", columns=columns) as screen:
        assert screen.ended() == 3
        lines = screen.everything
    assert any(line.startswith("ok    reachable") for line in lines)
    assert any(line.startswith("fail  alive") for line in lines)
    assert any(line.startswith("      → ") for line in lines)
    assert all(len(line) <= columns for line in lines)
