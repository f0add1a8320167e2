"""Clients and executors for stepgraph."""
