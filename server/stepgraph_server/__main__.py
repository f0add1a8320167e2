"""`python -m stepgraph_server`: the command `serve`, and nothing else."""

from __future__ import annotations

from stepgraph_server.command import serve

if __name__ == "__main__":
    serve(prog_name="stepgraph serve")
