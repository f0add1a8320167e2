"""What a transition is called, without anything that it works on, and whether two of them are the same one.

Rules: kinds and names only, never payloads: a prompt may have the time in it, and still asks for the same thing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from stepgraph.v1 import policy_pb2, transition_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

#: So many parts of a label are shown.
MAX_SHOWN: Final = 8


def label(transition: transition_pb2.Transition) -> str:
    """Return what a transition is called: "await tool search, sleep", "goto billing"."""
    head, parts = _named(transition)
    return _shown(head, parts)


def difference(
    recorded: transition_pb2.Transition, replayed: transition_pb2.Transition
) -> tuple[str, str] | None:
    """Return the labels of two transitions that are not the same one, or None. They differ in what is shown of them."""
    before, now = _named(recorded), _named(replayed)
    if before == now:
        return None
    start = _first_difference(before[1], now[1]) if before[0] == now[0] else 0
    # A long list is shown from where it differs on.
    start = 0 if start < MAX_SHOWN else start
    return _shown(*before, start=start), _shown(*now, start=start)


def _named(transition: transition_pb2.Transition) -> tuple[str, list[str]]:
    kind = transition.WhichOneof("kind")
    match kind:
        case "await_effects":
            awaited = transition.await_effects
            each = awaited.wake == transition_pb2.WAKE_POLICY_EACH
            return "await each" if each else "await", [_effect(one) for one in awaited.effects]
        case "spawn":
            join = policy_pb2.JoinPolicy.Name(transition.spawn.join)
            name = join.removeprefix("JOIN_POLICY_").lower()
            return f"spawn {name}", [_spec(one) for one in transition.spawn.specs]
        case "goto":
            return f"goto {transition.goto.target}", []
        case "suspend":
            return f"suspend {_reason(transition.suspend)}", []
        case "done":
            return "done", []
        case None:
            return "nothing", []
        case _:
            assert_never(kind)


def _effect(effect: transition_pb2.Effect) -> str:
    match effect.WhichOneof("kind"):
        case "llm":
            return f"llm {effect.llm.request.model}".rstrip()
        case "tool":
            return f"tool {effect.tool.name}"
        case "graph":
            return f"graph {effect.graph.graph_ref.reference}".rstrip()
        case "sleep":
            return "sleep"
        case "custom":
            return f"effect {effect.custom.kind}"
        case "delegate":
            return f"agent {effect.delegate.agent_kind}"
        case _:
            return "an unknown effect"


def _spec(spec: transition_pb2.NodeSpec) -> str:
    body = spec.body
    return f"program {body.program}" if body.HasField("program") else f"node {body.node_id}"


def _reason(suspend: transition_pb2.Transition.Suspend) -> str:
    kind = suspend.reason.WhichOneof("kind")
    return f"signal {suspend.reason.signal.name}" if kind == "signal" else kind or "for nothing"


def _first_difference(before: Sequence[str], now: Sequence[str]) -> int:
    same = 0
    for one, other in zip(before, now, strict=False):
        if one != other:
            break
        same += 1
    return same


def _shown(head: str, parts: Sequence[str], *, start: int = 0) -> str:
    shown = list(parts[start : start + MAX_SHOWN])
    if start:
        shown.insert(0, f"… from the {start + 1}th on: {shown.pop(0) if shown else 'nothing'}")
    more = len(parts) - start - MAX_SHOWN
    if more > 0:
        shown.append(f"… and {more} more")
    return f"{head} {', '.join(shown)}".rstrip()
