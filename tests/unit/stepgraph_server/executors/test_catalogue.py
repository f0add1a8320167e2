"""Which tools models are shown."""

from __future__ import annotations

import pytest

from stepgraph_server.core.canonical import digest
from stepgraph_server.core.instants import Instant
from stepgraph_server.executors import catalogue as catalogue_module
from stepgraph_server.executors.capabilities import change
from stepgraph_server.executors.catalogue import Catalogue
from stepgraph_server.executors.registry import Registry
from tests.support.hellos import agent, hello, received, tool
from tests.support.outlets import RecordingOutlet

NOW = Instant(0)
OTHER_TOKEN = b"another-token-of-16"


class House:
    def __init__(self):
        self.registry = Registry(0, lambda seat: None)
        self.catalogue = Catalogue(self.registry)

    def connect(self, executor_id, *capabilities, **options):
        message = hello(executor_id, capabilities=capabilities, **options)
        seat = self.registry.join(received(message), RecordingOutlet(), NOW).seat
        self.registry.open(seat, 0)
        return seat

    def names(self, selector=(), namespace="default"):
        return [offer.definition.name for offer in self.catalogue.tools(namespace, selector)]

    def texts(self):
        return [offer.definition.description for offer in self.catalogue.tools("default", ())]


@pytest.fixture
def house():
    return House()


def test_tools_of_all_executors_are_sorted_by_name_with_their_digests(house):
    house.connect("a", tool("zip"), tool("add"), agent("x"))
    house.connect("b", tool("map"))
    assert house.names() == ["add", "map", "zip"]
    assert all(
        offer.digest == digest(offer.definition) for offer in house.catalogue.tools("default", ())
    )


def test_nothing_is_on_offer_where_nobody_is(house):
    house.connect("a", tool("add"))
    assert house.names(namespace="elsewhere") == []


def test_only_executors_that_the_selector_admits_offer(house):
    house.connect("mine", tool("private"), labels={"caller": "me"})
    house.connect("all", tool("public"))
    assert house.names((("caller", "me"),)) == ["private"]
    assert house.names() == ["private", "public"]


def test_of_one_name_the_newest_definition_is_offered(house):
    house.connect("old", tool(description="old"))
    house.connect("new", tool(description="new"))
    assert house.texts() == ["new"]


def test_an_old_executor_that_reconnects_does_not_become_the_newest(house):
    old = house.connect("old", tool(description="old"))
    house.connect("new", tool(description="new"))
    house.registry.lost(old, NOW)
    house.connect("old", tool(description="old"))
    assert house.texts() == ["new"]


def test_an_old_executor_that_restarts_is_new(house):
    house.connect("old", tool(description="old"))
    house.connect("new", tool(description="new"))
    house.connect("old", tool(description="old"), token=OTHER_TOKEN)
    assert house.texts() == ["old"]


def test_a_definition_that_an_update_brings_is_new(house):
    seat = house.connect("a", tool(description="first"))
    house.connect("b", tool(description="second"))
    abilities = change(seat.abilities, added=[tool(description="third")], removed=[])
    house.registry.change(seat, abilities)
    assert house.texts() == ["third"]


def test_when_the_newest_leaves_the_one_before_is_offered_again(house):
    house.connect("old", tool(description="old"))
    new = house.connect("new", tool(description="new"))
    house.registry.leave(new)
    assert house.texts() == ["old"]


def test_a_broken_stream_changes_no_offer_until_its_grace_is_over(house):
    seat = house.connect("a", tool("add"))
    house.registry.lost(seat, NOW)
    assert house.names() == ["add"]
    house.registry.expire(NOW)
    assert house.names() == []


def test_who_is_drained_offers_nothing(house):
    seat = house.connect("a", tool("add"))
    house.registry.resize(seat, 0)
    assert house.names() == []
    house.registry.resize(seat, 1)
    assert house.names() == ["add"]


def test_the_same_object_is_returned_until_an_offer_changes(house):
    house.connect("a", tool("add"))
    offers = house.catalogue.tools("default", ())
    assert house.catalogue.tools("default", ()) is offers
    house.connect("b", agent("no-tools"))
    assert house.catalogue.tools("default", ()) is offers
    house.connect("c", tool("map"))
    assert house.catalogue.tools("default", ()) is not offers


def test_remembered_offers_are_bounded(house, monkeypatch):
    monkeypatch.setattr(catalogue_module, "MAX_REMEMBERED", 2)
    house.connect("a", tool("add"), labels={"k": "1"})
    for index in range(5):
        assert house.names((("k", str(index)),)) == (["add"] if index == 1 else [])


def sensitive(name, **fields):
    capability = tool(name, **fields)
    capability.tool.requires_approval = True
    return capability


def test_one_executor_that_wants_approval_is_enough_for_a_definition(house):
    """In a rolling deployment one says so and the other does not yet; which of them gets a call is known too late."""
    house.connect("old", tool("pay"))
    [offer] = house.catalogue.tools("default", ())
    assert not offer.requires_approval
    assert house.catalogue.approvals("default", ()) == frozenset()
    house.connect("new", sensitive("pay"))
    [offer] = house.catalogue.tools("default", ())
    assert offer.requires_approval
    assert house.catalogue.approvals("default", ()) == {("pay", offer.digest), ("pay", "")}


def test_approval_of_another_definition_counts_for_who_may_get_any(house):
    house.connect("a", sensitive("pay", description="old"))
    house.connect("b", tool("pay", description="new"))
    [offer] = house.catalogue.tools("default", ())
    assert (offer.definition.description, offer.requires_approval) == ("new", False)
    approvals = house.catalogue.approvals("default", ())
    assert ("pay", "") in approvals
    assert ("pay", offer.digest) not in approvals
