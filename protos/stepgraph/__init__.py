"""The stepgraph schema; `stepgraph.v1` holds the generated messages."""
