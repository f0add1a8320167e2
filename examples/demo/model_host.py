"""The process that hosts the model: `python -m examples.demo.model_host`. The model is the rule planner."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from examples.demo import editor, planner, surveys
from examples.demo.ledger import Ledger
from examples.demo.seen import Seen, text_of
from stepgraph.v1.conversation_pb2 import (
    ROLE_ASSISTANT,
    ROLE_USER,
    ContentBlock,
    Message,
    TextBlock,
    ToolCallBlock,
)
from stepgraph.v1.llm_pb2 import (
    LLM_STOP_REASON_END,
    LLM_STOP_REASON_TOOL_CALLS,
    LlmRequest,
    LlmResponse,
    Usage,
)
from stepgraph_client.executor import Executor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepgraph_client.task_context import TaskContext

MODEL = "rule-planner"


def reply_to(request: LlmRequest) -> LlmResponse:
    """Return what the rule planner says to a conversation: calls of tools, or an answer."""
    last = text_of(request.messages[-1].content) if request.messages else ""
    if last.startswith(surveys.BEGINNING):
        return _response(request, _survey(request, last), [])
    tools = [tool.name for tool in request.tools]
    seen = Seen(request.messages, tools)
    text = _edit(request, seen) if "propose_change" in tools else planner.answer(seen)
    if not seen.wanted:
        return _response(request, text, [])
    count = len(seen.wanted)
    return _response(request, f"I need {count} look{'' if count == 1 else 's'} more.", seen.wanted)


def _survey(request: LlmRequest, message: str) -> str:
    """Plan a survey where the answer has a schema, else report on it; both from the last message alone."""
    known = surveys.Known.read(message)
    return surveys.plan(known).model_dump_json() if request.output_schema else surveys.report(known)


def _edit(request: LlmRequest, seen: Seen) -> str:
    """Ask for the change that the messages wish for; return why not, if it can't be made out."""
    said = [text_of(each.content) for each in request.messages if each.role == ROLE_USER]
    wish = editor.wish(said)
    trouble = editor.missing(wish)
    if not trouble:
        seen.want("propose_change", file=wish.file, find=wish.find, replace=wish.replace)
    return trouble


def _response(request: LlmRequest, text: str, calls: Sequence[tuple[str, str]]) -> LlmResponse:
    blocks = [ContentBlock(text=TextBlock(text=text))]
    blocks += [ContentBlock(tool_call=ToolCallBlock(name=name, args=args)) for name, args in calls]
    read = " ".join(text_of(message.content) for message in request.messages)
    return LlmResponse(
        message=Message(role=ROLE_ASSISTANT, content=blocks),
        stop_reason=LLM_STOP_REASON_TOOL_CALLS if calls else LLM_STOP_REASON_END,
        # It has no tokens; its words are counted in their place.
        usage=Usage(input_tokens=len(read.split()), output_tokens=len(text.split())),
        model=MODEL,
    )


def host(server: str, ledger: Ledger) -> Executor:
    """Return an executor that answers calls of the rule planner."""
    executor = Executor(server, executor_id="model-host")

    @executor.model(MODEL)
    async def think(request: LlmRequest, ctx: TaskContext) -> LlmResponse:
        ledger.note(MODEL, ctx)
        response = reply_to(request)
        if request.streaming and response.stop_reason == LLM_STOP_REASON_END:
            for line in text_of(response.message.content).splitlines(keepends=True):
                await ctx.progress_text(line)
        return response

    return executor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    given = parser.parse_args()
    host(given.server, Ledger(given.ledger)).run_forever()


if __name__ == "__main__":
    main()
