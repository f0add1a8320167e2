"""The rules alone, with canned results."""

from __future__ import annotations

import time

import pytest

from stepgraph_client import (
    Failed,
    Graph,
    ToolError,
    done,
    error_occurred,
    goto,
    has_tool_calls,
    is_final_answer,
    limits,
    proceed,
    question,
    retry,
    state_equals,
)
from stepgraph_client.effects import graph as graph_effect
from stepgraph_client.effects import tool
from stepgraph_server.core.errors import GraphInvalid
from stepgraph_testing import Stuck, call, calls, dry_run, later


def react():
    graph = Graph("react", default_model="m")
    graph.llm("think", tools=True)
    graph.run_tools("act")
    graph.assign("answer")
    graph.edge("think", "act", when=has_tool_calls())
    graph.edge("act", "think")
    graph.edge("think", "answer", when=is_final_answer())
    graph.end("answer")
    return graph


def test_a_loop_is_played_from_its_results():
    """By the label of a task, or by its node; and it takes a moment only."""
    before = time.process_time()
    run = dry_run(
        react(),
        {"think": [calls(call("search", query="x")), "found it"], "tool search": "a page"},
        messages=["go"],
        variables={"n": 1},
    )
    assert time.process_time() - before < 5
    assert run.path == ["think", "act", "think", "answer"]
    assert run.status == "completed"
    assert run.output == "found it"
    assert run.variables["n"] == 1
    assert len(run.messages) == 4
    assert [task.label for task in run.tasks] == ["llm m", "tool search", "llm m"]
    assert "path: think → act → think → answer" in repr(run)


def test_functions_see_what_tasks_work_on():
    """Models, tools, agents, conditions and custom work, each in its own form."""
    seen = []

    def model(request):
        seen.append(len(request.messages))
        return calls(call("t", n=1)) if len(request.messages) == 1 else "end"

    def run_tool(arguments):
        seen.append(arguments)
        return arguments["n"] + 1

    run = dry_run(react(), {"llm m": model, "tool t": run_tool}, tools=[run_tool], messages=["go"])
    assert run.output == "end"
    assert seen[:2] == [1, {"n": 1}]
    graph = Graph("g")
    graph.delegate("ask", "helper", "do it")
    assert dry_run(graph, {"agent helper": str.upper}).output == "DO IT"


def test_failures_tries_and_errors_are_played():
    """A failure is tried again after its delay, and is routed when it is final; an error of a tool is a result."""
    graph = Graph("g")
    graph.tool("try", "t", {}, retry=retry(max_tries=2, first_delay="1h", jitter=0))
    graph.assign("caught")
    graph.edge("try", "caught", when=error_occurred("DOWN"))
    run = dry_run(graph, {"try": [Failed("DOWN", "no", retryable=True)] * 2})
    assert run.path == ["try", "caught"]
    assert run.tasks[0].failures == ("DOWN", "DOWN")
    assert dry_run(graph, {"try": ToolError("no")}).path == ["try", "caught"][:1]


def test_what_takes_long_meets_its_limits():
    """The time of a dry run goes with what is said later."""
    graph = Graph("g")
    graph.tool("try", "t", {}, limits=limits(run="1m"), retry=retry(max_tries=1))
    assert dry_run(graph, {"try": later("10s", "in time")}).output == "in time"
    late = dry_run(graph, {"try": later("10m", "too late")})
    assert late.failure.code == "RUN_LIMIT"


def test_questions_are_answered_and_their_deadlines_come():
    """By their node; without an answer, a deadline is what comes next."""
    graph = Graph("g")
    graph.approval("ask", "Deploy?", interrupt=question(deadline="1h", default_answer=proceed()))
    graph.assign("deploy")
    graph.edge("ask", "deploy", when=state_equals("_approval", "proceed"))
    assert dry_run(graph, {"ask": proceed()}).path == ["ask", "deploy"]
    assert dry_run(graph, {}).path == ["ask", "deploy"]
    with pytest.raises(TypeError, match=r"give proceed\(\)"):
        dry_run(graph, {"ask": "yes"})


def test_child_runs_end_with_their_results():
    """Of nodes and of effects: an output, variables, or a failure."""
    graph = Graph("parent")
    graph.subgraph("ask", "child", input={"n": "{{x}}"}, output_variables={"got": "found"})
    seen = []

    def child(given):
        seen.append(given)
        return {"found": given["n"] + 1}

    run = dry_run(graph, {"graph child": child}, variables={"x": 1})
    assert (run.variables["got"], run.output, seen) == (2, {"found": 2}, [{"n": 1}])
    failing = dry_run(graph, {"ask": Failed("NO_CHILD", "no")}, variables={"x": 1})
    assert failing.failure.code == "NO_CHILD"
    graph = Graph("g")
    graph.step("work", "p")
    asked = dry_run(graph, {"work": [graph_effect("child", 5), done("end")], "graph child": 7})
    assert asked.output == "end"


def test_a_tool_that_needs_a_person_is_asked_about():
    """The answer has a name of its own, beside the result of the node."""
    graph = Graph("g", approval=["t"])
    graph.tool("act", "t", {})
    run = dry_run(graph, {"act": "done", "question act": proceed()})
    assert run.output == "done"
    assert len(run.history.of("interrupt_answered")) == 1


def test_steps_are_played_by_their_transitions():
    """Turn by turn; what is no transition is the value."""
    graph = Graph("g")
    graph.step("work", "p")
    graph.assign("other")
    graph.edge("work", "other", handoff=True)
    run = dry_run(graph, {"work": [tool("t"), goto("other", 7)], "tool t": "x"})
    assert run.path == ["work", "other"]
    assert dry_run(graph, {"step p": 5}).output == 5


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ({}, "llm m of node think has no result; give one for 'llm m' or 'think'"),
        ({"think": []}, r"results\['think'\] has 0 items"),
    ],
)
def test_what_is_missing_is_named(results, why):
    """With what happened before."""
    with pytest.raises(Stuck, match=rf"(?s){why}.*path: think.*attempt 1 is under way"):
        dry_run(react(), results)


def test_a_question_without_an_answer_stops_it():
    """Nobody will come."""
    graph = Graph("g", time_limit="1h")
    graph.approval("ask", "Deploy?")
    with pytest.raises(
        Stuck, match=r"(?s)nothing in `results` helps.*ask: an answer to 'Deploy\?'"
    ):
        dry_run(graph, {})


def test_a_broken_graph_is_refused():
    """As a server would."""
    graph = Graph("g")
    graph.assign("a")
    graph.edge("a", "missing")
    with pytest.raises(GraphInvalid):
        dry_run(graph.build(), {})


def test_it_is_the_same_each_time():
    """Its times included."""
    first, second = (dry_run(react(), {"think": "x"}, messages=["go"]) for _ in range(2))
    assert list(first.history) == list(second.history)
