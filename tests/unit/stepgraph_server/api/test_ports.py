"""What implements a port has its methods, with the names of their parameters."""

from __future__ import annotations

import inspect

import pytest

from stepgraph_server.api import ports
from stepgraph_server.api.executor_stream import ExecutorStreams
from stepgraph_server.engine.engine import Engine
from stepgraph_server.engine.state_at import FoldedState
from stepgraph_server.engine.watch import Watcher
from stepgraph_server.executors.registry import Registry
from stepgraph_server.executors.seats import Outlet
from tests.support.standins import (
    EngineStandIn,
    OutletStandIn,
    SessionsStandIn,
    StateStandIn,
)


def members(cls):
    return {
        name: member
        for name, member in vars(cls).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }


@pytest.mark.parametrize(
    ("port", "implementation"),
    [
        (ports.Engine, Engine),
        (ports.Engine, EngineStandIn),
        (ports.Watcher, EngineStandIn),
        (ports.Watcher, Watcher),
        (ports.StateAt, FoldedState),
        (ports.StateAt, StateStandIn),
        (ports.Executors, Registry),
        (ports.Executors, SessionsStandIn),
        (ports.Sessions, ExecutorStreams),
        (ports.Sessions, SessionsStandIn),
        (ports.Outlet, Outlet),
        (ports.Outlet, OutletStandIn),
    ],
    ids=lambda cls: f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}",
)
def test_an_implementation_has_every_member_of_its_port(port, implementation):
    for name, member in members(port).items():
        found = getattr(implementation, name, None)
        assert found is not None, f"{implementation.__name__} has no {name}"
        if not isinstance(member, property):
            wanted = list(inspect.signature(member).parameters)
            assert list(inspect.signature(found).parameters) == wanted, name
