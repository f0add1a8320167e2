"""Callers: they start runs, answer, signal, pause, cancel, fork and look, and repeat themselves when they hear nothing.

Rules: whoever wants something keeps asking, with the same request id, until there is an answer. What is answered does not depend
on when.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from google.protobuf.json_format import MessageToDict

from stepgraph.v1 import interrupt_pb2, run_pb2, run_service_pb2, value_pb2
from stepgraph_server.core import canonical
from stepgraph_server.core.errors import Quarantined, Refused
from stepgraph_server.core.inputs import Cancel, Pause, Signal, Unpause
from stepgraph_server.engine.callers import Caller, RequestKey
from stepgraph_server.storage.errors import JournalUnavailable
from tests.simulation.answers import SIGNAL, answer_to
from tests.simulation.network import ConnectionLost
from tests.simulation.server import NAMESPACE

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from stepgraph.v1 import graph_pb2
    from stepgraph_server.app import Parts
    from tests.simulation.server import Server
    from tests.simulation.world import World

    Make = Callable[[Parts], Awaitable[Any]]

#: What passes.
_PASSING = ("JOURNAL_UNAVAILABLE", "OVERLOADED", "SHUTTING_DOWN")
#: So many answers of the same question may be on their way.
_DELAY_S = (0.1, 4.0)


def key_of(method: str, request_id: str, *parts: object) -> RequestKey:
    """Return what a request is remembered by."""
    fingerprint = canonical.digest_text(f"{method} {parts}")
    return RequestKey(method=method, request_id=request_id, fingerprint=fingerprint)


class Callers:
    """All who call."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._dice = world.dice("callers")
        self._handled: set[str] = set()
        #: Runs that somebody has stopped.
        self.cancelled: set[str] = set()

    # Calls

    async def persist(self, make: Make, check: Callable[[Server, Any], None] | None = None) -> Any:
        """Call until there is an answer. Raises Refused, if that is what it is."""
        while True:
            server = self.world.server
            try:
                if server is not None and server.is_up:
                    return await self._call(server, make, check or (lambda _, __: None))
            except (ConnectionLost, JournalUnavailable):
                pass
            except Refused as refused:
                if refused.reason not in _PASSING:
                    raise
            await asyncio.sleep(self._dice.uniform(0.05, 1.5))

    async def _call(self, server: Server, make: Make, check: Callable[[Server, Any], None]) -> Any:
        strikes = self.world.faults.strikes
        self.world.count("calls")
        await asyncio.sleep(self._dice.uniform(0.001, 0.01))
        if strikes("call.lost") is not None or not server.is_up:
            raise ConnectionLost
        if strikes("call.twice") is not None:
            self.world.spawn(self._again(server, make, check))
        response = await server.call(make, lambda response: check(server, response))
        await asyncio.sleep(self._dice.uniform(0.001, 0.01))
        if strikes("call.unanswered") is not None:
            raise ConnectionLost
        return response

    async def _again(
        self, server: Server, make: Make, check: Callable[[Server, Any], None]
    ) -> None:
        with contextlib.suppress(ConnectionLost, JournalUnavailable, Refused):
            await server.call(make, lambda response: check(server, response))

    # Runs

    async def start(self, run_id: str, definition: graph_pb2.StateGraph, after_s: float) -> None:
        """Start a run, and answer whatever it asks, to its end."""
        await asyncio.sleep(after_s)
        request = run_service_pb2.StartRunRequest(run_id=run_id, request_id=f"start {run_id}")
        request.graph.definition.CopyFrom(definition)
        request.input.value.text = "go"
        run = await self.persist(
            lambda parts: parts.engine.start_run(NAMESPACE, request, Caller()), _check_run
        )
        if run.run_id != run_id:
            self.world.trouble(f"{run_id} was to be started, and {run.run_id} was")
        await self.attend(run_id)

    async def attend(self, run_id: str) -> None:
        """Answer what a run and those below it ask, until it has ended."""
        while not self.world.ledger.book(run_id).is_final:
            await asyncio.sleep(self._dice.uniform(0.3, 1.5))
            for row, _ in await self.persist(
                lambda parts: parts.store.interrupts.list(
                    *(NAMESPACE, None, run_id, interrupt_pb2.INTERRUPT_STATUS_OPEN, None, 50)
                )
            ):
                if row.interrupt_id not in self._handled:
                    self._handled.add(row.interrupt_id)
                    self.world.spawn(self._answer(interrupt_pb2.Interrupt.FromString(row.question)))

    async def _answer(self, question: interrupt_pb2.Interrupt) -> None:
        await asyncio.sleep(self._dice.uniform(*_DELAY_S))
        try:
            if question.reason.HasField("signal"):
                await self._signal(question)
            else:
                await self._reply(question)
        except Refused as refused:
            # With a deadline the default answer may have been first.
            late = ["INTERRUPT_ANSWERED"] if question.HasField("deadline_time") else []
            if refused.reason not in ("RUN_ENDED", "INTERRUPT_CLOSED", *late):
                self.world.trouble(f"{question.interrupt_id}: {refused.reason} {refused}")

    async def _reply(self, question: interrupt_pb2.Interrupt) -> None:
        answer = answer_to(question)
        key = key_of("AnswerInterrupt", f"answer {question.interrupt_id}", MessageToDict(answer))

        def check(server: Server, given: interrupt_pb2.Interrupt) -> None:
            book = self.world.ledger.book(question.run_id)
            if book.questions.get(question.interrupt_id) != "interrupt_answered":
                self.world.trouble(f"{question.interrupt_id} was answered before that was durable")
            if given.answer != answer:
                self.world.trouble(f"{question.interrupt_id} has another answer than was given")

        await self.persist(
            lambda parts: parts.engine.answer(
                NAMESPACE, question.interrupt_id, answer, "anna", key
            ),
            check,
        )

    async def _signal(self, question: interrupt_pb2.Interrupt) -> None:
        """Send what a question waits for, and again if another one of the same name got it."""
        wanted, book = question.reason.signal, self.world.ledger.book(question.run_id)
        number = 0
        while book.questions.get(question.interrupt_id) == "open":
            for _ in range(wanted.count or 1):
                number += 1
                payload = value_pb2.Value(text=f"for {wanted.correlation}")
                signal = Signal(name=wanted.name, correlation=wanted.correlation, payload=payload)
                name = f"{question.interrupt_id} {number}"
                await self.change(question.run_id, "SignalRun", signal, name)
            await asyncio.sleep(20)

    async def signal_early(self, run_id: str, dice: random.Random) -> None:
        """Send a signal that nobody may wait for yet; it is kept. Whoever gets it gets the same as from others."""
        correlation = dice.choice(("of a node", "of a pair", "of a child", "n1"))
        payload = value_pb2.Value(text=f"for {correlation}")
        signal = Signal(name=SIGNAL, correlation=correlation, payload=payload)
        try:
            await self.change(run_id, "SignalRun", signal, f"early {dice.getrandbits(32):x}")
        except Refused as refused:
            if refused.reason != "RUN_ENDED":
                self.world.trouble(f"a signal to {run_id}: {refused.reason} {refused}")

    async def change(self, run_id: str, method: str, change: Any, request_id: str) -> run_pb2.Run:
        """Change a run."""
        key = key_of(method, f"{method} {request_id}", run_id)
        return await self.persist(
            lambda parts: parts.engine.change_run(NAMESPACE, run_id, change, key), _check_run
        )

    # What not everybody does

    async def pause(self, run_id: str, dice: random.Random) -> None:
        """Pause a run, and let it go on later."""
        name = f"{run_id} {dice.getrandbits(32):x}"
        try:
            await self.change(run_id, "PauseRun", Pause(reason="wait"), name)
            await asyncio.sleep(dice.choice((0.2, 3.0, 15.0)))
            await self.change(run_id, "UnpauseRun", Unpause(), name)
        except Refused as refused:
            if refused.reason != "RUN_ENDED":
                self.world.trouble(f"pausing {run_id}: {refused.reason} {refused}")

    async def cancel(self, run_id: str) -> None:
        """Stop a run."""
        self.cancelled.add(run_id)
        try:
            run = await self.change(run_id, "CancelRun", Cancel(reason="enough"), run_id)
            if run.status == run_pb2.RUN_STATUS_RUNNING:
                self.world.trouble(f"{run_id} is RUNNING after it was cancelled")
        except Refused as refused:
            if refused.reason != "RUN_ENDED":
                self.world.trouble(f"cancelling {run_id}: {refused.reason} {refused}")

    async def fork(self, run_id: str, number: int, dice: random.Random) -> None:
        """Fork a run anywhere, or retry it if it has failed, and attend to the new one."""
        new_id = f"{run_id}-f{number}"
        last = self.world.ledger.book(run_id).last
        request = run_service_pb2.ForkRunRequest(
            run_id=run_id, new_run_id=new_id, sequence=dice.randint(0, last)
        )
        key = key_of("ForkRun", new_id, request.sequence)
        try:
            await self.persist(
                lambda parts: parts.engine.fork_run(NAMESPACE, request, Caller(), key), _check_run
            )
        except Refused as refused:
            if refused.reason not in ("SEQUENCE_OUT_OF_RANGE", "RUN_ENDED"):
                self.world.trouble(f"forking {run_id}: {refused.reason} {refused}")
            return
        self.world.watch(new_id)
        await self.attend(new_id)

    async def look(self, run_id: str, dice: random.Random) -> None:
        """Ask what a run waits for, and what it is."""
        await self.explain(run_id)
        sequence = dice.randint(0, self.world.ledger.book(run_id).last)
        state = await self.persist(
            lambda parts: parts.engine.run_state(NAMESPACE, run_id, sequence)
        )
        if sequence and state.sequence != sequence:
            self.world.trouble(f"the state of {run_id} at {sequence} is that at {state.sequence}")

    async def explain(self, run_id: str) -> list[Any]:
        """Return what a run waits for; a run that waits for nothing must have gone on when it is asked again."""
        before = -1
        while True:
            try:
                run, waits = await self.persist(
                    lambda parts: parts.engine.explain_run(NAMESPACE, run_id)
                )
            except Quarantined as error:
                self.world.trouble(str(error))
                return []
            if waits or run.status >= run_pb2.RUN_STATUS_COMPLETED:
                return waits
            if run.last_sequence == before:
                self.world.trouble(f"{run_id} hangs at event {before}, and waits for nothing")
                return []
            before = run.last_sequence
            await asyncio.sleep(3)


def _check_run(server: Server, run: run_pb2.Run) -> None:
    server.check_run(run)


__all__ = ["Callers"]
