"""The step programs of the shapes. Host them beside your model and tools:

    executor = Executor("127.0.0.1:7233")
    programs.host(executor)
    executor.run_forever()

The comment at the top of a shape says which of them it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

if TYPE_CHECKING:
    from stepgraph_client import Executor, StepContext

#: So many messages are enough to be summed up.
LONG = 40
#: What a person may say: any text. The answer is checked before the program goes on.
TEXT = TypeAdapter(str).json_schema()


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpWanted:
    """What a model asks for by `request_help`."""

    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What `progress` hands on to `summarise`."""

    is_done: bool


async def help_wanted(ctx: StepContext) -> str:
    """Ask a person what a model wants to know. coding_agent: `help`."""
    said = await ctx.ask(ctx.input_as(HelpWanted).question, TEXT)
    if not said:
        ctx.goto("given_up")
    return str(said)


async def progress(ctx: StepContext) -> None:
    """Say whether the work is done, and whether there is too much to go on with. coding_agent: `progress`."""
    messages = len(ctx.conversation)
    reply = await ctx.llm("Is the plan carried out? Say DONE or MORE.", include_conversation=True)
    is_done = "DONE" in str(reply)
    if messages > LONG:
        ctx.goto("summarise", {"is_done": is_done})
    ctx.goto("conclude" if is_done else "act")


async def summarise(ctx: StepContext) -> None:
    """Sum up, and go where `progress` would have gone. coding_agent: `summarise`."""
    reply = await ctx.llm("Sum up what was done so far.", include_conversation=True)
    ctx.update(variables={"summary": str(reply)})
    ctx.goto("conclude" if ctx.input_as(Progress).is_done else "act")


def host(executor: Executor) -> None:
    """Let an executor run the programs."""
    executor.step("help")(help_wanted)
    executor.step("progress")(progress)
    executor.step("summarise")(summarise)
