"""The server listens on loopback, unless somebody said otherwise in so many words."""

from __future__ import annotations

import socket

import pytest

from stepgraph_server.api.listening import (
    Address,
    AddressInUse,
    AddressRefused,
    parse_address,
    refuse_if_in_use,
    refuse_unless_allowed,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7233", "127.0.0.1", 7233),
        ("[::1]:0", "::1", 0),
        (" localhost:1 ", "localhost", 1),
    ],
)
def test_an_address_is_host_and_port(text, host, port):
    address = parse_address(text)

    assert (address.host, address.port) == (host, port)
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text",
    ["", "7233", ":7233", "localhost", "localhost:", "localhost:x", "::1:5", "a:70000", "a:-1"],
)
def test_anything_else_is_refused_with_an_example(text):
    with pytest.raises(AddressRefused, match=r"127\.0\.0\.1:7233"):
        parse_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_is_allowed(host):
    refuse_unless_allowed(Address(host=host, port=1), insecure=False)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com"]
)
def test_any_other_host_is_refused_with_the_reason_and_the_remedy_unless_told(host):
    with pytest.raises(AddressRefused, match="--insecure") as caught:
        refuse_unless_allowed(Address(host=host, port=1), insecure=False)

    assert "no TLS and no authentication" in str(caught.value)
    refuse_unless_allowed(Address(host=host, port=1), insecure=True)


def test_a_port_in_use_is_refused():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]

        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port}: address already in use"):
            refuse_if_in_use(Address(host="127.0.0.1", port=port))

    refuse_if_in_use(Address(host="127.0.0.1", port=port))


def test_a_host_that_the_machine_does_not_have_is_refused():
    with pytest.raises(AddressInUse):
        refuse_if_in_use(Address(host="192.0.2.1", port=7233))
    with pytest.raises(AddressInUse):
        refuse_if_in_use(Address(host="nobody.invalid", port=7233))


def test_any_free_port_is_never_in_use():
    refuse_if_in_use(Address(host="127.0.0.1", port=0))
