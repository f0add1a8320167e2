"""What executors, people and other systems answer: functions of what they are asked, whoever asks and whenever.

Rules: nothing here depends on ids of runs, on attempts, on who else is there or on what a step program is reminded of. So a run
in which everything goes wrong can be compared with one in which nothing does.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from google.protobuf.json_format import ParseDict

from stepgraph.v1 import (
    conversation_pb2,
    executor_service_pb2,
    interrupt_pb2,
    task_pb2,
    transition_pb2,
)
from tests.simulation.child_graphs import WAITS, WORKS

#: Tools that executors have; a model asks for one more, which nobody has.
TOOLS = ("add", "find", "flaky")
UNKNOWN_TOOL = "nope"
#: A tool that a graph performs.
GRAPH_TOOL = "solve"
MODEL = "m"
AGENT = "a"
EFFECT = "c"
CONDITION = "good"
PROGRAMS = ("p", "w", "x")
#: A program whose course depends on who is first.
RACER = "x"
#: A program that may go to a node has its name in its own.
GOTO = "goto_"
SIGNAL = "sig"
#: What a script fails with, which is a part of the graph's course and no fault of ours.
SCRIPTED = "BROKEN_BY_SCRIPT"
NOBODY = "NOBODY_BY_SCRIPT"

_LAST_TURN = 3
_BODIES: list[dict[str, Any]] = [
    {"node_id": "w_tool"},
    {"node_id": "w_ask"},
    {"node_id": "w_nap"},
    {"node_id": "w_step"},
    {"program": "w"},
    {"program": RACER},
]
_EFFECTS: list[dict[str, Any]] = [
    {"tool": {"name": "find", "args": '{"q": "x"}'}},
    {"tool": {"name": "add", "args": '{"q": "y"}'}},
    {"custom": {"kind": EFFECT, "payload": {"text": "x"}}},
    {"delegate": {"agent_kind": AGENT, "task": "t"}},
    {
        "llm": {
            "request": {
                "model": MODEL,
                "messages": [{"role": "ROLE_USER", "content": [{"text": {"text": "?"}}]}],
            }
        }
    },
    {"sleep": {"duration": "7s"}},
    {"sleep": {"duration": "0s"}},
    {"graph": {"graph_ref": {"definition": WORKS}, "input": {"text": "x"}}},
    {"graph": {"graph_ref": {"definition": WAITS}}},
]


def plain_input(task: task_pb2.Task) -> bytes:
    """Return what a task asks, without what depends on who is asked: which run it is, and what a program is reminded of."""
    plain = task_pb2.TaskInput()
    plain.CopyFrom(task.input)
    if plain.HasField("step"):
        for name in ("run_id", "history", "history_start"):
            plain.step.ClearField(name)
    return plain.SerializeToString(deterministic=True)


def dice_of(task: task_pb2.Task) -> random.Random:
    """Return dice that fall the same way for the same task with the same input, whatever tools a model is offered."""
    bare = task_pb2.Task(input=task.input)
    if bare.input.HasField("llm"):
        bare.input.llm.ClearField("tools")
    _, _, task_id = task.task_id.partition("/")
    return random.Random(hashlib.sha256(task_id.encode() + plain_input(bare)).digest())


def outcome_of(task: task_pb2.Task) -> executor_service_pb2.AttemptOutcome:
    """Return how a task ends if nothing goes wrong."""
    outcome = executor_service_pb2.AttemptOutcome(task_id=task.task_id, attempt=task.attempt)
    dice = dice_of(task)
    kind = task.input.WhichOneof("kind")
    if kind in ("tool", "agent", "effect") and dice.random() < 0.02:
        outcome.failed.failure.code = SCRIPTED
        outcome.failed.failure.message = "the script wants it so"
        outcome.failed.failure.retryable = False
        return outcome
    result = outcome.succeeded
    match kind:
        case "llm":
            _model(task.input.llm, dice, result)
        case "tool":
            result.tool.output.text = f"{task.input.tool.name} {dice.getrandbits(16):x}"
            result.tool.is_error = task.input.tool.name == "flaky" and dice.random() < 0.5
        case "condition":
            result.condition.holds = dice.random() < 0.5
        case "agent":
            result.agent.output.text = f"agent {dice.getrandbits(16):x}"
        case "effect":
            result.effect.output.text = f"effect {dice.getrandbits(16):x}"
        case "step":
            ParseDict(_reply(task, dice), result.step)
    return outcome


def _model(request: Any, dice: random.Random, result: task_pb2.TaskResult) -> None:
    message = result.llm.message
    message.role = conversation_pb2.ROLE_ASSISTANT
    rounds = sum(
        any(block.HasField("tool_call") for block in each.content) for each in request.messages
    )
    result.llm.usage.input_tokens = 3
    result.llm.usage.output_tokens = 2
    if request.tools and rounds < 3 and dice.random() < 0.7:
        own = [GRAPH_TOOL] if any(tool.name == GRAPH_TOOL for tool in request.tools) else []
        known = (*TOOLS, *TOOLS, UNKNOWN_TOOL, *own * 3)
        for name in dice.choices(known, k=dice.randint(1, 3)):
            call = message.content.add().tool_call
            call.name = name
            call.args = f'{{"q": "{dice.getrandbits(8):x}"}}'
        return
    message.content.add().text.text = f"said {dice.getrandbits(16):x}"


def _reply(task: task_pb2.Task, dice: random.Random) -> dict[str, Any]:
    step = task.input.step
    depth = task.task_id.count("/s")
    kinds = ["await", "await", "human", "signal", "done", "done"]
    kinds += ["spawn"] * (2 if depth < 2 else 0)
    target = step.program.removeprefix(GOTO) if step.program.startswith(GOTO) else ""
    kinds += ["goto"] * (3 if target and depth == 0 else 0)
    kind = "done" if step.turn >= _LAST_TURN else dice.choice(kinds)
    tree: dict[str, Any] = {"transition": _transition(kind, step, dice, target)}
    if depth == 0 and dice.random() < 0.5:
        update = {"variables": {"log": {"text": f"t{step.turn}"}, "last": {"text": "p"}}}
        tree["update"] = update
    tree["holds_turns"] = dice.random() < 0.5
    return tree


def _transition(
    kind: str, step: transition_pb2.StepContext, dice: random.Random, target: str
) -> dict[str, Any]:
    racing = step.program == RACER
    match kind:
        case "await":
            effects = dice.choices(_EFFECTS, k=dice.randint(1, 3))
            wake = "WAKE_POLICY_EACH" if racing and dice.random() < 0.5 else "WAKE_POLICY_ALL"
            return {"await_effects": {"effects": effects, "wake": wake}}
        case "spawn":
            specs = [
                {
                    "body": dice.choice(_BODIES if racing else _BODIES[:-1]),
                    "input": {"text": f"i{index}"},
                }
                for index in range(dice.randint(1, 3))
            ]
            joins = ("JOIN_POLICY_ALL", "JOIN_POLICY_ALL_SETTLED", "JOIN_POLICY_FIRST")
            join = dice.choice(joins if racing else joins[:2])
            return {"spawn": {"specs": specs, "join": join, "max_concurrency": dice.randint(0, 2)}}
        case "human":
            wanted: dict[str, Any] = {"reason": {"human": {"prompt": f"turn {step.turn}?"}}}
            if racing:
                wanted |= {"timeout": "2s"}
                wanted |= {"default_answer": {"text": "late"}} if dice.random() < 0.7 else {}
            return {"suspend": wanted}
        case "signal":
            reason = {"signal": {"name": SIGNAL, "correlation": f"{step.node_id}", "count": 1}}
            return {"suspend": {"reason": reason}}
        case "goto":
            return {"goto": {"target": target, "carry": {"text": "carried"}}}
        case _:
            seen = hashlib.sha256(
                b"".join(each.SerializeToString(deterministic=True) for each in step.results)
            )
            return {"done": {"value": {"text": f"done {seen.hexdigest()[:6]}"}}}


def answer_to(question: interrupt_pb2.Interrupt) -> interrupt_pb2.InterruptAnswer:
    """Return what a person answers."""
    about = f"{question.activation_id} {question.reason.human.prompt} {question.task_id}"
    dice = random.Random(hashlib.sha256(about.encode()).digest())
    answer = interrupt_pb2.InterruptAnswer()
    no = dice.random() < 0.05
    # A step program asks with its turn, a node with its description.
    if question.reason.human.prompt.startswith("turn "):
        if no:
            answer.failed.failure.code = NOBODY
        else:
            answer.reply.value.text = f"yes {dice.getrandbits(8):x}"
    elif question.options:
        answer.choose.option_id = dice.choice(question.options).id
    elif no:
        answer.abort.reason = "no"
    elif dice.random() < 0.15:
        answer.revise.feedback = "another way"
    elif question.HasField("tool"):
        if dice.random() < 0.5:
            answer.proceed_with.tool_args = '{"q": "by a person"}'
        else:
            answer.proceed.SetInParent()
    elif dice.random() < 0.2:
        answer.proceed_with.variables["last"].text = "by a person"
        answer.proceed_with.message = "go on like this"
    else:
        answer.proceed.SetInParent()
    return answer


__all__ = [
    "AGENT",
    "CONDITION",
    "EFFECT",
    "GOTO",
    "GRAPH_TOOL",
    "MODEL",
    "NOBODY",
    "PROGRAMS",
    "RACER",
    "SCRIPTED",
    "SIGNAL",
    "TOOLS",
    "answer_to",
    "dice_of",
    "outcome_of",
    "plain_input",
]
