"""Problems of graphs, as lines with their places in the file.

Rules: what the server says is shown; only where it speaks of names that the file does not have, or in a parser's words, is it
said anew. A text that this version does not know stays as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepgraph_client.command.calling import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stepgraph.v1.graph_service_pb2 import GraphProblem
    from stepgraph_client.client import Client
    from stepgraph_client.command.parameters import GivenGraph
    from stepgraph_client.errors import GraphInvalid
    from stepgraph_client.files import SourceMap


def problem_lines(
    problems: Iterable[GraphProblem], source: SourceMap | None, kind: str = "error"
) -> Iterator[str]:
    """Yield a problem as compilers do: place, kind, what is wrong, and on a second line what to do."""
    for problem in problems:
        message, hint = _in_words(problem, source)
        place = f"{source.locate(problem.path)}: " if source is not None else ""
        path = f" (at {problem.path})" if problem.path else ""
        yield f"{place}{kind}: {message}{path} [{problem.code}]"
        if hint:
            yield f"    {hint}"


async def all_problems(client: Client, graph: GivenGraph, refusal: GraphInvalid) -> CommandError:
    """Return the end of a command for a broken graph: with all problems, where a refusal has the first ones."""
    if graph.definition is None:
        return CommandError(str(refusal))
    checked = await client.validate_graph(graph.definition)
    count = len(checked.problems)
    name = graph.reference
    head = f"{name} has {count} problem{'' if count == 1 else 's'}; nothing was stored"
    return CommandError("\n".join([head, *problem_lines(checked.problems, graph.source)]))


def _in_words(problem: GraphProblem, source: SourceMap | None) -> tuple[str, str]:
    """Return what is wrong and what to do."""
    if problem.path == "entry_point" and problem.code == "REQUIRED" and source is not None:
        # The file calls it `start`, whatever the schema does.
        first = source.first_node
        hint = f"Write `start: {first}` if the first node is to be it." if first else problem.hint
        return f"`start` is missing: {problem.message}", hint
    return syntax_text(problem.message), problem.hint


_UNKNOWN_TOKEN = re.compile(r"Syntax error: token recognition error at: '(.*)'(?=, at character|$)")
_UNEXPECTED = re.compile(
    r"Syntax error: (?:mismatched|extraneous) input '(.*?)' expecting (<EOF>|'.'|\{.*\})(?=, at character|$)"
)
_MISSING = re.compile(r"Syntax error: missing ('.') at '.*'(?=, at character|$)")
_WORDS = {"=": "==", "and": "&&", "or": "||", "not": "!", "is": "=="}
#: More than this many possibilities are a grammar, and no help.
_MAX_EXPECTED = 3


def syntax_text(message: str) -> str:
    """Return what is wrong with an expression without the parser's lists of tokens."""
    for pattern, words in (
        (_UNKNOWN_TOKEN, _unknown_token),
        (_UNEXPECTED, _unexpected),
        (_MISSING, lambda found: f"{found[1]} is missing"),
    ):
        if found := pattern.match(message):
            return words(found) + message[found.end() :]
    return message


def _unknown_token(found: re.Match[str]) -> str:
    token = found[1].strip()
    return f"{token!r} is not known in an expression{_instead(token)}"


def _unexpected(found: re.Match[str]) -> str:
    read, expected = found[1], re.findall(r"'(.)'", found[2])
    wanted = f"; expected {' or '.join(map(repr, expected))}"
    wanted = wanted if 0 < len(expected) <= _MAX_EXPECTED else ""
    if read == "<EOF>":
        return f"the expression ends too early{wanted}"
    return f"{read!r} does not belong here{_instead(read) or wanted}"


def _instead(token: str) -> str:
    return f"; write {_WORDS[token]}" if token in _WORDS else ""
