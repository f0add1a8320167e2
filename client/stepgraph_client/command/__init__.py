"""The command line `stepgraph`."""

from __future__ import annotations
