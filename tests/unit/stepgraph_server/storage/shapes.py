"""Whether a class has the shape of a port: what a type checker sees, seen again where tests run."""

from __future__ import annotations

import inspect


def shape(owner: type) -> dict[str, list[tuple[str, object]]]:
    """Return the public methods with their parameters and defaults."""
    return {
        name: [
            (parameter.name, parameter.default)
            for parameter in inspect.signature(member).parameters.values()
        ]
        for name, member in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
    }


def differences(port: type, backend: type) -> list[str]:
    """Return what a backend lacks, or has otherwise."""
    has = shape(backend)
    return [
        f"{backend.__name__}.{name}"
        for name, parameters in shape(port).items()
        if has.get(name) != parameters
    ]
