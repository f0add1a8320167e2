"""A fixed piece of work to compare with: how fast is this machine in this minute?

Machines drift: the same code may take half as long again a minute later, on a laptop or where a host is shared. A figure
that is divided by what the reference took in the same minute can be compared with one of another day.
"""

from __future__ import annotations

import json
import time

from stepgraph.v1.event_pb2 import NodeCompleted, RunEvent

#: Never change these: figures of before would mean something else.
_ROUNDS = 4_000
_DOCUMENT = {"name": "reference", "items": [{"id": each, "text": "x" * 40} for each in range(8)]}


def reference_us() -> float:
    """Return how many microseconds of CPU one round takes; the best of five, so that a hiccup doesn't count."""
    return min(_once() for _ in range(5))


def _once() -> float:
    begin = time.process_time()
    kept: dict[int, str] = {}
    for number in range(_ROUNDS):
        text = json.dumps(_DOCUMENT)
        event = RunEvent(
            sequence=number, node_completed=NodeCompleted(node_id="think", activation_id=text[:40])
        )
        again = RunEvent.FromString(event.SerializeToString())
        kept[again.sequence % 64] = again.node_completed.node_id
    return (time.process_time() - begin) * 1e6 / _ROUNDS
