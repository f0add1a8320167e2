"""Who calls, and the ids that make a call safe to repeat.

Rules: the one place of the client that makes ids.
"""

from __future__ import annotations

import getpass
import re
import secrets
import socket
from importlib import metadata

#: `answered_by` takes at most this many characters.
MAX_NAME = 256


def new_request_id() -> str:
    """Return an id for one logical call; all its retries use the same one."""
    return secrets.token_hex(16)


def caller_name() -> str:
    """Return who calls, for people: the user and the host. Nobody checks it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user often has no name.
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:MAX_NAME]


def client_version() -> str:
    """Return the library and its version, such as "stepgraph-python/0.1.0"."""
    try:
        version = metadata.version("stepgraph")
    except metadata.PackageNotFoundError:
        # Run from a source tree that was not installed.
        version = "unknown"
    return f"stepgraph-python/{version}"


def new_executor_id() -> str:
    """Return an id for an executor that was given none: the host, for people, and chance."""
    host = re.sub("[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64].lstrip("_.-")
    return f"{host or 'executor'}-{secrets.token_hex(4)}"


def new_instance_token() -> bytes:
    """Return the secret of one process of an executor."""
    return secrets.token_bytes(32)
