"""Whether a token that a step program wants to wait for is free: one token answers one question of a namespace.

Rules: what is durable is asked of the store. A run whose reply was delivered just now may not have written its question yet, so it
is waited for before the store is asked about the same token again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stepgraph.v1 import interrupt_pb2
from stepgraph_server.core.errors import StepgraphError
from stepgraph_server.storage.errors import JournalUnavailable

if TYPE_CHECKING:
    from stepgraph.v1 import task_pb2
    from stepgraph_server.engine.runner import Runner
    from stepgraph_server.storage.interrupts import Interrupts
    from stepgraph_server.storage.records import RunKey

#: So many tokens are remembered that were found to be free lately; by then their questions are durable.
MAX_REMEMBERED: Final = 1_024
#: When to look again, if nothing can be read: the reply must not get lost.
LOOK_UP_PERIOD_S: Final = 0.5


def external_token(result: task_pb2.TaskResult) -> str:
    """Return the token that a reply wants to wait for; empty if it is no such reply."""
    return result.step.transition.suspend.reason.external.token if result.HasField("step") else ""


class Tokens:
    """Tokens of open questions. Whoever asks holds `lock` until the reply is delivered."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._lately: OrderedDict[tuple[str, str], RunKey] = OrderedDict()
        self.lock = asyncio.Lock()

    async def is_taken(self, runner: Runner, key: RunKey, token: str) -> bool:
        """Whether a question of another run waits for a token; if not, it is taken for this run from now on."""
        name = (key.namespace, token)
        earlier = self._lately.get(name)
        if earlier is not None and earlier != key:
            with contextlib.suppress(StepgraphError):
                await runner.settled(earlier)
        if await self._waits(key, token):
            return True
        self._lately[name] = key
        self._lately.move_to_end(name)
        if len(self._lately) > MAX_REMEMBERED:
            self._lately.popitem(last=False)
        return False

    async def _waits(self, key: RunKey, token: str) -> bool:
        while True:
            try:
                found = await self._interrupts.get_by_token(key.namespace, token)
            except JournalUnavailable:
                await asyncio.sleep(LOOK_UP_PERIOD_S)
                continue
            # Of its own questions the run itself knows.
            return (
                found is not None
                and found[0].status == interrupt_pb2.INTERRUPT_STATUS_OPEN
                and found[1] != key
            )


__all__ = ["MAX_REMEMBERED", "Tokens", "external_token"]
