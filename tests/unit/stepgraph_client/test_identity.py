from __future__ import annotations

import getpass
import re
from importlib import metadata

from stepgraph_client import identity


def test_request_ids_are_new_and_short_enough() -> None:
    ids = {identity.new_request_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) <= 64 and each.isascii() for each in ids)


def test_a_caller_is_named_by_user_and_host(monkeypatch) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")
    assert identity.caller_name().startswith("ada@")


def test_a_user_without_a_name_is_unknown(monkeypatch) -> None:
    def nameless() -> str:
        raise KeyError

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert identity.caller_name().startswith("unknown@")


def test_the_version_is_told_where_there_is_one(monkeypatch) -> None:
    assert identity.client_version() == f"stepgraph-python/{metadata.version('stepgraph')}"

    def missing(_name: str) -> str:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    assert identity.client_version() == "stepgraph-python/unknown"


def test_an_executor_id_names_the_host_and_is_unlike_any_other(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "_häst.name")
    first, second = identity.new_executor_id(), identity.new_executor_id()
    assert first != second
    assert re.fullmatch(r"h-st\.name-[0-9a-f]{8}", first)
    monkeypatch.setattr("socket.gethostname", lambda: "é" * 100)
    assert re.fullmatch(r"executor-[0-9a-f]{8}", identity.new_executor_id())


def test_an_instance_token_is_a_secret_of_its_own():
    assert len(identity.new_instance_token()) == 32
    assert identity.new_instance_token() != identity.new_instance_token()
