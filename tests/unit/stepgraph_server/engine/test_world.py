"""The world as one run sees it."""

from __future__ import annotations

from types import SimpleNamespace

from stepgraph_server.core.inputs import Placement, RunLimits
from stepgraph_server.engine.world import RunWorld
from stepgraph_server.storage.records import RunKey

KEY = RunKey("default", "r1")
HERE = Placement(executor_id="e1", instance="i")


class Asked:
    """Says who asked for what."""

    def place(self, key, task):
        return HERE if (key, task) == (KEY, "task") else None

    def capable(self, key, task):
        return 3 if (key, task) == (KEY, "task") else 0

    def tools(self, namespace, selector):
        return (namespace, selector)

    def approvals(self, namespace, selector):
        return {("pay", "d")} if (namespace, selector) == ("default", "s") else set()


def test_a_run_sees_its_own_namespace_and_the_limits_of_the_server():
    limits = RunLimits()
    world = RunWorld(key=KEY, places=Asked(), catalogue=Asked(), limits=limits, jitter=lambda: 0.5)
    assert world.place("task") is HERE
    assert world.place(SimpleNamespace()) is None
    assert world.capable("task") == 3
    assert world.tools((("a", "b"),)) == ("default", (("a", "b"),))
    assert world.requires_approval(SimpleNamespace(key=("tool", "pay", "d"), selector="s"))
    assert not world.requires_approval(SimpleNamespace(key=("tool", "pay", ""), selector="s"))
    assert world.jitter() == 0.5
    assert world.limits is limits
