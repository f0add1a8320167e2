"""The process that hosts the tools, the sub-agent and the conditions: `python -m examples.demo.tool_host`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

# Types of tools are read when the tools are declared, so they are imported for more than the type checker.
from examples.demo import changes, surveyor, surveys
from examples.demo.changes import Applied, Proposal, Verified  # noqa: TC001
from examples.demo.findings import Excerpt, Found, Listing, Measured, Survey
from examples.demo.folder import Folder
from examples.demo.ledger import Ledger
from stepgraph_client.executor import Executor
from stepgraph_client.task_context import ConditionContext, TaskContext  # noqa: TC001

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepgraph.v1.value_pb2 import Value

#: How often a long search says how far it is.
PROGRESS_S = 0.5

InFolder = Annotated[str, Field(description="A path relative to the folder; '.' is all of it.")]


def host(server: str, folder: Folder, scratch: Folder, ledger: Ledger) -> Executor:
    """Return an executor with tools that read a folder, tools that change a scratch copy, an agent, and conditions."""
    executor = Executor(server, executor_id="tool-host")
    add_reading(executor, folder, ledger)
    add_surveying(executor, folder, ledger)
    add_changing(executor, scratch, ledger)
    add_conditions(executor, ledger)
    return executor


def add_reading(executor: Executor, folder: Folder, ledger: Ledger) -> None:
    """Add the tools that read a folder. They are not async, so each call runs in a thread of its own."""

    @executor.tool()
    def list_files(ctx: TaskContext, path: InFolder = ".", pattern: str = "*") -> Listing:
        """List the files below a path whose name fits a pattern such as '*.py', with sizes and line counts."""
        ledger.note("list_files", ctx)
        return folder.list_files(path, pattern)

    @executor.tool()
    def read_file(
        ctx: TaskContext, path: InFolder, first_line: int = 1, last_line: int = 0
    ) -> Excerpt:
        """Read lines of a text file; without a last line, as many as are given at once."""
        ledger.note("read_file", ctx)
        return folder.read_file(path, first_line, last_line)

    @executor.tool()
    def search(
        ctx: TaskContext,
        text: str,
        path: InFolder = ".",
        *,
        whole_word: bool = False,
        ignore_case: bool = False,
    ) -> Found:
        """Find the lines below a path that have a text in them. The text is no regular expression."""
        ledger.note("search", ctx)
        return folder.search(
            text,
            path,
            whole_word=whole_word,
            ignore_case=ignore_case,
            progress=_progress(ctx, text),
        )


def add_surveying(executor: Executor, folder: Folder, ledger: Ledger) -> None:
    """Add what the survey of a folder needs: a tool, the agent that surveys one part, and when it is enough."""

    @executor.tool()
    def measure(ctx: TaskContext, path: InFolder = ".") -> Measured:
        """Say how many files and lines there are below a path, and below each folder directly inside it."""
        ledger.note("measure", ctx)
        return folder.measure(path)

    @executor.agent("surveyor")
    def survey_one(task: str, ctx: TaskContext) -> Survey:
        ledger.note("surveyor", ctx)
        return surveyor.survey(folder, task, ctx.progress)

    @executor.condition("has_seen_enough")
    def has_seen_enough(ctx: ConditionContext) -> bool:
        ledger.note("has_seen_enough", ctx)
        measured = Measured.model_validate_json(ctx.variables["measured"].json)
        return surveys.has_seen_enough(measured, surveys.read_all(ctx.variables["surveys"].json))


def add_changing(executor: Executor, scratch: Folder, ledger: Ledger) -> None:
    """Add the tools that change files. What may be done only after an approval is for the graph to say."""

    @executor.tool()
    def propose_change(ctx: TaskContext, file: InFolder, find: str, replace: str) -> Proposal:
        """Say what replacing a text everywhere in a file would change. Nothing is written."""
        ledger.note("propose_change", ctx)
        return changes.propose(scratch, file, find, replace)

    @executor.tool()
    def apply_change(ctx: TaskContext, proposal: Proposal) -> Applied:
        """Write a change that was proposed, if the file is still as it was then."""
        ledger.note("apply_change", ctx)
        return changes.apply(scratch, proposal)

    @executor.tool()
    def verify_change(ctx: TaskContext, file: InFolder, digest: str) -> Verified:
        """Read a file again, and compare it with what was approved."""
        ledger.note("verify_change", ctx)
        return changes.verify(scratch, file, digest)


def add_conditions(executor: Executor, ledger: Ledger) -> None:
    """Add the conditions that the graph of the change leaves to an executor."""

    @executor.condition("is_worth_asking")
    def is_worth_asking(ctx: ConditionContext) -> bool:
        ledger.note("is_worth_asking", ctx)
        # A tool that had trouble gives a text that says so, and no proposal.
        return bool(_json(ctx.variables, "proposal").get("lines_changed"))

    @executor.condition("is_as_approved")
    def is_as_approved(ctx: ConditionContext) -> bool:
        ledger.note("is_as_approved", ctx)
        return _json(ctx.variables, "verification").get("as_approved") is True


def _progress(ctx: TaskContext, text: str) -> Callable[[int, int], None]:
    last = time.perf_counter()

    def report(done: int, total: int) -> None:
        nonlocal last
        ctx.raise_if_cancelled()
        if time.perf_counter() - last >= PROGRESS_S:
            last = time.perf_counter()
            ctx.progress(f"searched {done} of {total} files for {text}")

    return report


def _json(variables: Mapping[str, Value], name: str) -> dict[str, object]:
    value = variables.get(name)
    if value is None or not value.HasField("json"):
        return {}
    found = json.loads(value.json)
    return found if isinstance(found, dict) else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    given = parser.parse_args()
    host(
        given.server, Folder(given.folder), Folder(given.scratch), Ledger(given.ledger)
    ).run_forever()


if __name__ == "__main__":
    main()
