"""The rules of a run, pure."""
