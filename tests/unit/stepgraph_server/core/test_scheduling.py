"""What a task gets when it begins: of its node, and of its effect."""

from __future__ import annotations

from google.protobuf.json_format import ParseDict

from stepgraph.v1 import task_pb2, transition_pb2
from stepgraph_server.core.instants import SECOND
from stepgraph_server.core.policies import NO_LIMITS, RetryPolicy
from stepgraph_server.core.scheduling import apply_options, mark_sleep, new_task, reset_policies
from stepgraph_server.core.state import Task, TaskStatus
from stepgraph_server.core.tasks import due_at
from tests.support.core_pieces import activation_of, compiled, started, state_of, succeeded
from tests.support.core_run import START

GRAPH = compiled(
    """
nodes:
  - {id: a, step: {program: p}, retry: {max_tries: 7, factor: 3}, limits: {run: 5s}}
"""
)


def _task(key: tuple[str, ...] = ("tool", "t", "")) -> Task:
    state = state_of(GRAPH)
    return new_task(state, activation_of(GRAPH, "a"), task_id="1/a/t0/e0", now=START, key=key)


def test_an_effect_changes_what_it_names_and_leaves_the_rest_to_its_node() -> None:
    task = _task()
    tree = {"retry": {"max_tries": 1}, "limits": {"queue": "1s"}, "selector": {"zone": "east"}}
    apply_options(task, ParseDict(tree, transition_pb2.EffectOptions()))
    assert (task.retry.max_tries, task.retry.factor) == (1, 3)
    assert (task.limits.queue, task.limits.run) == (SECOND, 5 * SECOND)
    assert task.selector == (("zone", "east"),)


def test_empty_options_change_nothing() -> None:
    task = _task()
    before = (task.retry, task.limits, task.selector)
    apply_options(task, transition_pb2.EffectOptions())
    assert (task.retry, task.limits, task.selector) == before


def test_a_sleep_is_due_at_its_end_and_has_no_other_limit() -> None:
    task = _task(("sleep",))
    mark_sleep(task, START + 99 * SECOND)
    assert task.status is TaskStatus.SLEEPING
    assert due_at(task) == START + 99 * SECOND


def test_what_an_effect_says_stays_when_its_node_is_exchanged() -> None:
    run = started(GRAPH)
    reply = transition_pb2.StepReply()
    effects = reply.transition.await_effects.effects
    ParseDict({"tool": {"name": "t"}, "options": {"retry": {"maxTries": 1}}}, effects.add())
    ParseDict({"sleep": {"duration": "9s"}}, effects.add())
    run.happen(succeeded("1/a/t0/poll", task_pb2.TaskResult(step=reply)))
    task, sleep = run.state.tasks["1/a/t0/e0"], run.state.tasks["1/a/t0/e1"]
    task.retry = RetryPolicy(max_tries=99)
    for each in (task, sleep):
        reset_policies(each)
    assert (task.retry.max_tries, task.retry.factor) == (1, 3)
    assert sleep.limits == NO_LIMITS
