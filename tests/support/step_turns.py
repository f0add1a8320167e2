"""A server's half of a step program in memory: polls it, and tells it what ends; other processes take over on request."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING

from stepgraph.v1 import failure_pb2, llm_pb2, task_pb2, transition_pb2
from stepgraph_client._functions import Functions
from stepgraph_client.task_context import TaskContext, TaskHost
from stepgraph_client.task_results import text_block
from stepgraph_client.values import to_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from stepgraph.v1 import conversation_pb2

Result = transition_pb2.EffectResult
PROGRAM = "p"


class StepPolls:
    """One step program under way. What its executor holds is told by polls as a server would."""

    def __init__(
        self,
        call: Callable[..., object],
        *,
        given: object = None,
        variables: Mapping[str, object] | None = None,
        conversation: Sequence[conversation_pb2.Message] = (),
        run_id: str = "r",
    ) -> None:
        self._call = call
        self._host = TaskHost(asyncio.get_running_loop(), None)  # type: ignore[arg-type]
        self._given = None if given is None else to_value(given)
        self.variables = {name: to_value(value) for name, value in (variables or {}).items()}
        self.conversation = conversation
        self.run_id = run_id
        self.turns: list[transition_pb2.StepTurn] = []
        self.attempt = 0
        self.held = False
        self.functions = Functions()
        self.functions.add_step(PROGRAM, call)

    def move(self, call: Callable[..., object] | None = None) -> None:
        """Let another process go on, with the same program or another version of it."""
        self.functions = Functions()
        self.functions.add_step(PROGRAM, call or self._call)
        self.held = False

    def forget(self) -> None:
        """Send all turns again, to the same process."""
        self.held = False

    async def poll(self, *results: Result) -> transition_pb2.Transition:
        """Poll the program once. Returns what it wants next."""
        reply = await self.reply(*results)
        return reply.transition

    async def reply(self, *results: Result) -> transition_pb2.StepReply:
        """Poll the program once. Returns all that it answers."""
        turn = len(self.turns)
        poll = transition_pb2.StepContext(
            run_id=self.run_id,
            node_id="n",
            program=PROGRAM,
            input=self._given,
            turn=turn,
            results=results,
            history=() if self.held else self.turns,
            history_start=turn if self.held else 0,
            variables=self.variables,
            conversation=self.conversation,
        )
        self.attempt += 1
        task = task_pb2.Task(
            task_id=f"{self.run_id}/1/n/t{turn}/poll",
            attempt=self.attempt,
            node_id="n",
            input=task_pb2.TaskInput(step=poll),
        )
        # As it comes over the wire: nothing is shared with what was sent before.
        task = task_pb2.Task.FromString(task.SerializeToString())
        function = self.functions.find(task.input)
        assert function is not None
        returned = function.bind(task.input, TaskContext(task, self._host, lambda _: None))()
        if inspect.isawaitable(returned):
            returned = await returned
        reply = function.to_result(returned).step
        self.turns.append(transition_pb2.StepTurn(results=results, reply=reply))
        self.held = reply.holds_turns
        return reply


def tool_gave(turn: int, index: int, value: object, *, is_error: bool = False) -> Result:
    """Return a tool's result."""
    given = transition_pb2.ToolResult(output=to_value(value), is_error=is_error)
    return Result(turn=turn, index=index, label="tool t", tool=Result.Tool(result=given))


def model_said(turn: int, index: int, text: str) -> Result:
    """Return a model's reply."""
    response = llm_pb2.LlmResponse()
    response.message.content.append(text_block(text))
    return Result(turn=turn, index=index, label="llm m", llm=Result.Llm(response=response))


def node_gave(turn: int, index: int, value: object) -> Result:
    """Return the value of spawned work."""
    return Result(turn=turn, index=index, node=Result.Node(output=to_value(value)))


def answered(turn: int, *values: object) -> Result:
    """Return the answer to a Suspend."""
    return Result(turn=turn, answer=Result.Answer(values=map(to_value, values)))


def slept(turn: int, index: int) -> Result:
    """Return the end of a sleep."""
    return Result(turn=turn, index=index, label="sleep", slept=Result.Slept())


def failed(turn: int, index: int, code: str = "BROKEN", message: str = "no") -> Result:
    """Return a failure."""
    failure = failure_pb2.Failure(
        code=code, message=message, category=failure_pb2.FAILURE_CATEGORY_TECHNICAL
    )
    return Result(turn=turn, index=index, label="tool t", failed=Result.Failed(failure=failure))
