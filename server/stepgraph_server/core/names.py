"""What things may be called, and which names are nobody's but the server's.

Rules: the patterns of the schema stand here once. A name that is wrong is reported by who asks; nothing here raises.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from stepgraph.v1 import graph_pb2

MAX_ID_CHARACTERS: Final = 64
MAX_VARIABLE_CHARACTERS: Final = 128
MAX_MODEL_CHARACTERS: Final = 128
MAX_CORRELATION_CHARACTERS: Final = 256
MAX_SUGGESTIONS: Final = 3

#: So many signals a run keeps for those who don't wait yet: a sender that nobody listens to must not fill it.
MAX_KEPT_SIGNALS: Final = 1_000

ID_PATTERN: Final = "[A-Za-z_][A-Za-z0-9_.-]{0,63}"
VARIABLE_PATTERN: Final = "[A-Za-z_][A-Za-z0-9_.-]{0,127}"
FAILURE_CODE_PATTERN: Final = "[A-Z][A-Z0-9_]{1,62}"
_ID: Final = re.compile(ID_PATTERN)
_VARIABLE: Final = re.compile(VARIABLE_PATTERN)
_FAILURE_CODE: Final = re.compile(FAILURE_CODE_PATTERN)

#: What the answer to a node's question is stored as; each has copies `<name>.<node>`.
APPROVAL: Final = "_approval"
APPROVAL_FEEDBACK: Final = "_approval_feedback"
CHOICE: Final = "_choice"
#: What a ConditionCheck stores, with copies `<name>.<node>`.
CONDITION_RESULT: Final = "_condition_result"

APPROVAL_NAMES: Final = (APPROVAL, APPROVAL_FEEDBACK, CHOICE)
RESERVED_VARIABLES: Final = (*APPROVAL_NAMES, CONDITION_RESULT)
#: Tools whose definitions are the server's: a call of them is a decision.
RESERVED_TOOLS: Final = frozenset({"delegate", "switch_paradigm"})
#: What templates see beside the variables. A variable of such a name could never be read by a template.
TEMPLATE_NAMES: Final = ("last_result", "last_error", "decision", "input", "item", "item_index")


def is_id(text: str) -> bool:
    """Whether a node, edge, graph, program, tool, kind, condition, paradigm, signal or option may have this name."""
    return _ID.fullmatch(text) is not None


def is_variable(text: str) -> bool:
    """Whether a variable may have this name."""
    return _VARIABLE.fullmatch(text) is not None


def is_failure_code(text: str) -> bool:
    """Whether a failure may have this code."""
    return _FAILURE_CODE.fullmatch(text) is not None


def is_reserved(variable: str) -> bool:
    """Whether only the server may write this variable: its name begins with a reserved one.

    More than what is written today, so that the server can add to it without taking a name away from somebody.
    """
    return variable.startswith(RESERVED_VARIABLES)


def is_approval(variable: str) -> bool:
    """Whether this variable says how a node's question was answered: `_approval`, or a copy as `_approval.review`."""
    return variable.startswith("_") and any(
        variable == name or variable.startswith(name + ".") for name in APPROVAL_NAMES
    )


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Return a hint with the names that are closest to `name`, or with what there is; empty if there is nothing."""
    if not known:
        return ""
    close = get_close_matches(name[:MAX_VARIABLE_CHARACTERS], known, n=MAX_SUGGESTIONS, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    listed = sorted(known)[:MAX_SUGGESTIONS]
    more = len(known) - len(listed)
    return f"There is {', '.join(listed)}" + (f" and {more} more." if more else ".")


def wanted_of(output: str) -> tuple[str, bool]:
    """Return the variable that an `output` of a Subgraph names, and whether it must be set: not with a ? behind it."""
    name = output.removesuffix("?")
    return name, name == output


def edge_ids(definition: graph_pb2.StateGraph) -> tuple[str, ...]:
    """Return the id of each edge, in declaration order.

    An edge without an id is named `<source>.<target>`, with `.2`, `.3`… if that is taken. Ids that are given are taken
    first, wherever they stand: what the server makes up must never make a given id a duplicate.
    """
    taken = {edge.id for edge in definition.edges if edge.id}
    # The next number to try, so that a thousand equal edges don't cost a million look-ups.
    counts: dict[str, int] = {}
    ids: list[str] = []
    for edge in definition.edges:
        if edge.id:
            ids.append(edge.id)
            continue
        base = f"{edge.source}.{edge.target}"
        count = counts.get(base, 1)
        name = base if count == 1 else f"{base}.{count}"
        while name in taken:
            count += 1
            name = f"{base}.{count}"
        counts[base] = count + 1
        taken.add(name)
        ids.append(name)
    return tuple(ids)
