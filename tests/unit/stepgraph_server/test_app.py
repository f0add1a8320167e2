"""Everything is built from the settings, started from the store outwards, and closed the other way round."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from stepgraph_server import app
from stepgraph_server.api.listening import AddressRefused
from stepgraph_server.config import Settings, load
from stepgraph_server.core.instants import MILLISECOND, SECOND, Instant
from stepgraph_server.core.policies import GraphDefaults
from stepgraph_server.executors.session_events import Terms
from stepgraph_server.storage.errors import JournalUnavailable, StoreInUse
from stepgraph_server.storage.memory import MemoryStore
from stepgraph_server.storage.records import RequestRecord
from stepgraph_server.storage.sqlite.store import SqliteStore

MEMORY = Settings(listen="127.0.0.1:0", memory=True)


async def test_a_server_in_memory_answers_where_it_says():
    async with app.running_server(MEMORY) as server:
        host, _, port = server.address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()
        assert isinstance(server.store, MemoryStore)
        assert server.api.health.is_ready
    assert not server.api.health.is_ready


async def test_a_server_on_a_file_makes_it_with_its_folder_and_holds_it(tmp_path):
    settings = Settings(listen="127.0.0.1:0", data=tmp_path / "new" / "runs.db")

    async with app.running_server(settings) as server:
        assert isinstance(server.store, SqliteStore)
        assert (tmp_path / "new" / "runs.db").exists()
        with pytest.raises(StoreInUse):
            async with app.running_server(settings):
                pass
    async with app.running_server(settings):
        pass


async def test_an_address_that_is_not_allowed_is_refused_before_any_data_is_touched(tmp_path):
    settings = Settings(listen="0.0.0.0:0", data=tmp_path / "new" / "runs.db")

    with pytest.raises(AddressRefused):
        async with app.running_server(settings):
            pass

    assert not (tmp_path / "new").exists()


async def test_what_goes_wrong_inside_comes_out_as_it_is():
    with pytest.raises(KeyError):
        async with app.running_server(MEMORY):
            raise KeyError


async def test_old_request_ids_are_forgotten(monkeypatch):
    class ManualClock:
        def now(self):
            return Instant(10**15)

    monkeypatch.setattr(app, "FORGET_PERIOD_S", 0.01)
    store = MemoryStore()
    async with app.running_server(MEMORY, store=store, clock=ManualClock()):
        for name, age in (("old", 25 * 3_600 * SECOND), ("young", SECOND)):
            record = RequestRecord(
                method="M",
                request_id=name,
                fingerprint="",
                response=b"",
                create_time=Instant(10**15 - age),
            )
            await store.requests.put("default", record)
        await asyncio.sleep(0.05)

        assert await store.requests.get("default", "M", "old") is None
        assert await store.requests.get("default", "M", "young") is not None


async def test_forgetting_waits_while_nothing_can_be_written(monkeypatch):
    monkeypatch.setattr(app, "FORGET_PERIOD_S", 0.01)
    store, tries = MemoryStore(), []

    async def forget(*_):
        tries.append(True)
        raise JournalUnavailable("x", "full", "Free space")

    store.requests.forget = forget
    async with app.running_server(MEMORY, store=store):
        await asyncio.sleep(0.05)

    assert len(tries) > 1


async def test_a_fault_beside_the_calls_ends_the_server(monkeypatch):
    async def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(app, "_forget_requests", fail)

    with pytest.raises(ExceptionGroup) as caught:
        async with app.running_server(MEMORY):
            await asyncio.sleep(5)
    assert caught.group_contains(ZeroDivisionError)


def test_run_ids_are_uuids_that_sort_by_their_age():
    ids = [app.make_run_id(Instant(1_700_000_000_000_000 + n * MILLISECOND)) for n in range(50)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 50
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in ids} == {(7, uuid.RFC_4122)}


def test_the_defaults_of_the_settings_are_those_of_the_rules():
    assert app.graph_defaults(Settings()) == GraphDefaults()
    assert app.terms(Settings()) == Terms(server_version=f"stepgraph/{app.version()}")


def test_settings_reach_the_rules():
    settings = load(
        {
            "retry.max_tries": "7",
            "tasks.queue": "1s",
            "limits.max_iterations": "9",
            "limits.max_run_events": "11",
            "limits.max_fan_out": "12",
            "session.cancel_grace": "2s",
            "session.lost_grace": "3s",
        },
        {},
    ).settings

    defaults = app.graph_defaults(settings)
    assert (defaults.retry.max_tries, defaults.limits.queue) == (7, SECOND)
    assert defaults.max_iterations == 9
    assert app.run_limits(settings).max_events == 11
    assert app.run_limits(settings).max_fan_out == 12
    assert app.terms(settings).lost_grace == 3 * SECOND
    assert app.terms(settings).cancel_grace == 2 * SECOND
