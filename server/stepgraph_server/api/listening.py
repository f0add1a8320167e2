"""Where the server listens, and whether it may.

Rules: whoever reaches the port may do everything, as long as there is no encryption and no authentication. So any address but
loopback is refused unless somebody said in so many words that this is wanted.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass
from typing import Final, TypeAlias

from stepgraph_server.core.errors import StepgraphError

MAX_PORT: Final = 65_535

Place: TypeAlias = tuple[
    socket.AddressFamily,
    socket.SocketKind,
    int,
    str,
    tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
]


class AddressRefused(StepgraphError):
    """The server does not listen there. Expected; the message has the reason and the remedy."""


class AddressInUse(AddressRefused):
    """Somebody else listens there, or the machine has no such address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A host and a port; port 0 means any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            # A name may mean anything, today or tomorrow.
            return False


def parse_address(text: str) -> Address:
    """Return the address that `host:port` stands for; an IPv6 address is written in brackets.

    Raises:
        AddressRefused: It is none.
    """
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not port.isdecimal() or int(port) > MAX_PORT:
        message = f"{text!r} is not host:port, such as 127.0.0.1:7233 or [::1]:7233"
        raise AddressRefused(message)
    return Address(host=host, port=int(port))


def refuse_unless_allowed(address: Address, *, insecure: bool) -> None:
    """Refuse an address that others can reach.

    Raises:
        AddressRefused: It is not loopback, and nobody said that this is wanted.
    """
    if address.is_loopback or insecure:
        return
    message = (
        f"refusing to listen on {address}: this server has no TLS and no authentication yet, so whoever reaches it "
        "can read and change everything. Listen on 127.0.0.1, or, where the network itself is trusted, "
        "say --insecure"
    )
    raise AddressRefused(message)


def refuse_if_in_use(address: Address) -> None:
    """Try to bind, and let go again: grpc says less about why it can't, and says it on stderr.

    Raises:
        AddressInUse: It can't be bound.
    """
    if address.port == 0:
        return
    failures: list[OSError] = []
    try:
        places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        failures = [error for place in places if (error := _failure(place)) is not None]
        in_use = [error for error in failures if error.errno == errno.EADDRINUSE]
        # A name may stand for an address that the machine does not have; grpc then takes the others.
        if in_use or len(failures) == len(places):
            raise (in_use or failures)[0]
    except OSError as error:
        message = (
            f"can't listen on {address}: {(error.strerror or str(error)).lower()}. Stop what uses it, "
            "or choose another address with --listen"
        )
        raise AddressInUse(message) from error


def _failure(place: Place) -> OSError | None:
    family, kind, protocol, _, where = place
    try:
        with socket.socket(family, kind, protocol) as probe:
            # As grpc does: connections of the last server that are still fading away don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        return error
    return None
