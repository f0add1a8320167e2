"""States as callers read them."""

from __future__ import annotations

from stepgraph.v1 import conversation_pb2, state_pb2
from tests.support.engine_executor import Executor, failed, succeeded
from tests.support.engine_rig import NAMESPACE, rig
from tests.support.engine_time import in_virtual_time
from tests.support.graphs import condition, graph
from tests.support.hellos import llm


@in_virtual_time
async def test_a_state_has_what_is_shared_and_what_each_activation_carries():
    nodes = {
        "think": {"action": {"llm_infer": {}}, "output_variable": "said"},
        "other": {"action": {"llm_infer": {}}},
    }
    initial = state_pb2.GraphState(metadata={"a": "b"}, active_paradigm="careful")
    initial.variables["x"].text = "y"
    async with rig() as it:
        executor = await Executor(it, capabilities=[llm("m")]).connect()
        await it.start(
            graph({"s": {}, **nodes}, ["s > think", "s > other"], default_model="m"),
            initial_state=initial,
            token_limit=100,
        )
        await it.settle()
        executor.report(succeeded(next(iter(executor.running.values()))))
        await it.settle()
        found = await it.engine.run_state(NAMESPACE, "r1", 0)
        assert found.sequence == len(it.store.events("r1"))
        assert found.variables["x"].text == "y"
        rest = found.rest()
        assert dict(rest.metadata) == {"a": "b"}
        assert rest.active_paradigm == "careful"
        assert rest.conversation.id == "r1"
        assert (rest.token_budget_remaining, rest.iteration_count) == (100, 2)
        assert not rest.should_terminate
        assert not rest.conversation.messages
        assert not rest.variables
        assert found.result() is None
        ended = {activation.node_id: activation.ended for activation in found.activations()}
        assert sorted(ended.values()) == [False, True]


@in_virtual_time
async def test_a_state_after_the_end_has_its_messages_and_result():
    nodes = {"think": {"action": {"llm_infer": {}}}}
    async with rig() as it:
        await Executor(it, capabilities=[llm("m")], script=succeeded).connect()
        given = conversation_pb2.Message(role=conversation_pb2.ROLE_USER)
        given.content.add().text.text = "hello"
        request_input = {"messages": [given]}
        await it.start(
            graph(nodes, default_model="m", terminal_nodes=["think"]), input=request_input
        )
        await it.settle()
        found = await it.engine.run_state(NAMESPACE, "r1", 0)
        texts = [message.content[0].text.text for message in found.messages]
        assert texts == ["hello", "done"]
        result = found.result()
        assert result is not None
        assert result.completed
        assert not found.activations()
        # Without a limit there is no budget, which is not the same as none left.
        assert not found.rest().HasField("token_budget_remaining")


@in_virtual_time
async def test_an_error_and_a_decision_are_carried():
    nodes = {"think": {"action": {"llm_infer": {}}}, "then": {}, "rescue": {}}
    edges = ["think > then", condition("think > rescue", "error_occurred")]
    async with rig() as it:
        await Executor(it, capabilities=[llm("m")], script=failed).connect()
        await it.start(graph(nodes, edges, default_model="m", retry={"max_tries": 1}))
        await it.settle()
        rest = (await it.engine.run_state(NAMESPACE, "r1", 0)).rest()
        assert rest.last_error.code == "BROKEN"
        await Executor(it, capabilities=[llm("m")], script=succeeded).connect()
        await it.start(graph(nodes, edges, default_model="m"), "r2")
        await it.settle("r2")
        rest = (await it.engine.run_state(NAMESPACE, "r2", 0)).rest()
        assert rest.parsed_decision.WhichOneof("kind") == "direct_answer"
        assert rest.HasField("last_result")


@in_virtual_time
async def test_what_a_node_has_spawned_is_listed_behind_it():
    """Without what it carries, which is its spawner's."""
    nodes = {
        "s": {"action": {"map": {"items": "[1, 2]", "body": {"node_id": "work"}}}},
        "work": {"action": {"delegate": {"agent_kind": "worker", "task_template": "{{item}}"}}},
    }
    async with rig() as it:
        await it.start(graph(nodes, []))
        await it.settle()
        found = (await it.engine.run_state(NAMESPACE, "r1", 0)).activations()
        assert [(each.activation_id, each.node_id) for each in found] == [
            ("1/s", "s"),
            ("1/s/t0/s0", "work"),
            ("1/s/t0/s1", "work"),
        ]
        assert [each.HasField("carried") for each in found] == [True, False, False]
