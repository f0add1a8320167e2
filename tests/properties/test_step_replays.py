"""Whatever a step program awaits, and whoever answers which turn: it asks for the same, and ends the same."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from stepgraph.v1 import transition_pb2
from stepgraph_client import EffectFailed, StepContext, program
from stepgraph_client.values import from_value
from tests.support.step_turns import StepPolls, answered, failed, node_gave, tool_gave

EACH = transition_pb2.WAKE_POLICY_EACH
MOST_TURNS = 200

OPERATIONS = st.one_of(
    st.tuples(st.just("tool"), st.just(1), st.just(0)),
    st.tuples(st.sampled_from(["all", "settled"]), st.integers(0, 4), st.just(0)),
    # How many are asked for, and how many are taken before the loop is left.
    st.tuples(st.just("each"), st.integers(0, 4), st.integers(1, 4)),
    st.tuples(st.just("spawn"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("ask"), st.just(1), st.just(0)),
)


def made_of(operations):
    """Return a program that does these, one after the other, and returns all that it saw."""

    async def call(ctx: StepContext):
        seen = []
        for kind, count, most in operations:
            try:
                seen.append(await do(ctx, kind, count, most))
            except EffectFailed as error:
                seen.append(error.code)
        return seen

    return call


async def do(ctx, kind, count, most):
    tools = [ctx.tool(f"t{index}") for index in range(count)]
    match kind:
        case "tool":
            return await tools[0]
        case "all":
            return await ctx.all(*tools)
        case "settled":
            return [str(each) for each in await ctx.settled(*tools)]
        case "spawn":
            return await ctx.spawn([program("p", index) for index in range(count)])
        case "ask":
            return await ctx.ask("well?")
        case _:
            taken = []
            async for ended in ctx.each(*tools):
                taken.append(ended.index)
                if len(taken) >= most:
                    break
            return taken


class Server:
    """What a server would tell, by chance of its own: which effects end first, and how."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.open = {}
        self.turn = -1

    def take(self, transition):
        """Take a reply, and return what the next poll brings."""
        self.turn += 1
        kind = transition.WhichOneof("kind")
        if kind == "suspend":
            return [*self.some(), answered(self.turn, "yes")]
        if kind == "spawn":
            count = len(transition.spawn.specs)
            return [*self.some(), *(node_gave(self.turn, index, index) for index in range(count))]
        awaited = transition.await_effects
        for index, effect in enumerate(awaited.effects):
            self.open[self.turn, index] = effect.tool.name
        assert self.open, "a program waits for nothing"
        ended = self.some(at_least=1) if awaited.wake == EACH else self.end(sorted(self.open))
        return sorted(ended, key=lambda result: (result.turn, result.index))

    def some(self, at_least=0):
        places = sorted(self.open)
        count = self.chance.randint(at_least, len(places)) if places else 0
        return self.end(self.chance.sample(places, count))

    def end(self, places):
        results = []
        for place in sorted(places):
            name = self.open.pop(place)
            bad = self.chance.random() < 0.2
            results.append(failed(*place) if bad else tool_gave(*place, name))
        return results


async def play(operations, seed, moves):
    """Return all that a program asked for, and its end; another process takes over where `moves` says."""
    polls, server = StepPolls(made_of(operations)), Server(seed)
    asked, told = [], []
    for turn in range(MOST_TURNS):
        if turn in moves:
            polls.move()
        transition = await polls.poll(*told)
        asked.append(transition.SerializeToString(deterministic=True))
        if transition.HasField("done"):
            return asked, from_value(transition.done.value)
        told = server.take(transition)
    raise AssertionError(operations)


@settings(max_examples=300, deadline=None)
@given(
    operations=st.lists(OPERATIONS, max_size=6),
    seed=st.integers(0, 2**32),
    moves=st.sets(st.integers(1, 25), max_size=10),
)
def test_a_program_does_the_same_wherever_it_is_replayed(operations, seed, moves):
    """Replays at any turns change nothing of what is asked for, nor of the end; and every program comes to its end."""
    alone = asyncio.run(play(operations, seed, frozenset()))
    moved = asyncio.run(play(operations, seed, moves))
    assert moved == alone
    assert len(alone[1]) == len(operations)
