"""The tables of docs/observability.md, made from the code: python -m tests.support.otlp_tables writes them into the page.

A table stands between `<!-- <name>: made from the code -->` and the next empty line behind it.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from pathlib import Path

from stepgraph_server.telemetry import names, span_names
from stepgraph_server.telemetry.measurements import Measurements
from stepgraph_server.telemetry.metrics import Sources, metrics_of
from stepgraph_server.telemetry.recorder import Lost

PAGE = Path(__file__).resolve().parents[2] / "docs" / "observability.md"


class _Recorder:
    """Stands for one, so that metrics of spans are listed too."""

    sent = 0
    lost = Lost()


def attributes() -> list[str]:
    rows = [
        f"| `{name}` | {where} | {meaning} |"
        for name, (where, meaning) in span_names.ATTRIBUTES.items()
    ]
    return ["| attribute | spans | meaning |", "|---|---|---|", *rows]


def metrics() -> list[str]:
    sources = Sources(measured=Measurements(), recorder=_Recorder())  # type: ignore[arg-type]  # all that is read
    rows = [
        f"| `{each.name}` | {each.kind} | {each.unit} | {', '.join(f'`{label}`' for label in each.labels)} | {each.meaning} |"
        for each in metrics_of(sources)
    ]
    return ["| metric | kind | unit | labels | meaning |", "|---|---|---|---|---|", *rows]


def actions() -> list[str]:
    """Return the actions with the texts that stand below them in names.py."""
    body = ast.parse(inspect.getsource(names)).body
    texts = {
        constant.target.id: " ".join(str(text.value.value).split())
        for constant, text in itertools.pairwise(body)
        if isinstance(constant, ast.AnnAssign)
        and isinstance(constant.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    rows = [f"| `{getattr(names, name)}` | {text} |" for name, text in texts.items()]
    return ["| action | meaning |", "|---|---|", *rows]


TABLES = {"attributes": attributes, "metrics": metrics, "actions": actions}


def renewed(page: str) -> str:
    """Return the page with its tables as the code has them."""
    for name, make in TABLES.items():
        mark = f"<!-- {name}: made from the code -->\n"
        pattern = re.escape(mark) + r"(?:\|.*\n)*"
        table = mark + "\n".join(make()) + "\n"
        page, count = re.subn(pattern, table.replace("\\", r"\\"), page)
        assert count == 1, f"the page must have {mark!r} once"
    return page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
