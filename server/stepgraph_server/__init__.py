"""The stepgraph server: runs agent graphs durably."""
