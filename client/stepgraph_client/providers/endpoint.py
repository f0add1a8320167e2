"""Where a provider's API is, and how to speak to it.

Rules: the key is in here, and comes out only where a request is signed: no `repr`, no message and no log has it.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

#: A model may think for minutes before it writes its first byte.
DEFAULT_SILENCE_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a provider's API is.

    Attributes:
        base_url: The URL that the paths of the API are added to, such as https://api.openai.com/v1.
        api_key: The key. Empty: none is sent, which servers on this machine are content with.
        key_name: How the key was given, such as the name of the variable; it is told to whoever has to correct it.
        connect_timeout_s: How long it may take to connect.
        silence_timeout_s: How long the other side may send nothing, before the first byte and between two.
        max_connections: How many connections are open at once; further calls wait for one for `connect_timeout_s`.
    """

    base_url: str
    api_key: str = field(default="", repr=False)
    key_name: str = "api_key"
    connect_timeout_s: float = 10.0
    silence_timeout_s: float = DEFAULT_SILENCE_TIMEOUT_S
    max_connections: int = 100

    def __post_init__(self) -> None:
        """Check what was given.

        Raises:
            ValueError: Something can't be; the message says what, and what to write.
        """
        _check_url(self.base_url)
        if self.api_key != self.api_key.strip() or not self.api_key.isprintable():
            # An HTTP header would refuse it later, with the key in the message.
            message = (
                f"the key in {self.key_name} has spaces, line breaks or control characters in it"
            )
            raise ValueError(message)
        if not self.api_key.isascii():
            message = f"the key in {self.key_name} has characters that no HTTP header may have"
            raise ValueError(message)
        for name in ("connect_timeout_s", "silence_timeout_s", "max_connections"):
            if getattr(self, name) <= 0:
                message = f"{name} must be above 0, not {getattr(self, name)}"
                raise ValueError(message)

    @property
    def address(self) -> str:
        """The URL as people may read it: without a password, and without a query."""
        return address_of(self.base_url)

    @property
    def is_loopback(self) -> bool:
        """Whether it is on this machine, where servers ask for no key."""
        host = urlsplit(self.base_url).hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


def address_of(url: str) -> str:
    """Return a URL as people may read it: without a user, a password, a query or a fragment."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}".rstrip("/")


def _check_url(url: str) -> None:
    example = "such as https://api.openai.com/v1 or http://127.0.0.1:8080/v1"
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname)
        _ = parts.port  # reading it checks it
    except ValueError:
        is_url = False
    if not is_url:
        message = f"{url!r} is not the URL of an API, {example}"
        raise ValueError(message)
