"""What interrupts are called."""

from __future__ import annotations

import hashlib


def interrupt_id(run_id: str, sequence: int) -> str:
    """Return the id of the interrupt that the event `sequence` opens.

    It is made of what is unique, so that a decision taken again gives the same id, and short enough to be typed.
    """
    return "q-" + hashlib.sha256(f"{run_id}/{sequence}".encode()).hexdigest()[:12]


__all__ = ["interrupt_id"]
