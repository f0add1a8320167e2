"""Links between our pages lead somewhere: to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    {
        ROOT / "README.md",
        ROOT / "server" / "ARCHITECTURE.md",
        ROOT / "protos" / "README.md",
        ROOT / "client" / "GRAPH_FILES.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "tests").rglob("README.md"),
    }
)
_LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w -]", "", plain.lower()).replace(" ", "-")
        number = 0
        while (unique := f"{anchor}-{number}" if number else anchor) in found:
            number += 1
        found.add(unique)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    wrong = []
    for link in _LINK.findall(page.read_text()):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            wrong.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(target):
            wrong.append(f"{link}: there is no such heading")
    assert not wrong, "\n".join(wrong)


def test_every_page_can_be_found_from_the_index():
    """In one step, or by the index of its folder."""
    reached: set[Path] = set()
    waiting = [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(page.read_text()))
        waiting += [
            target
            for link in links
            if link and (target := (page.parent / link).resolve()).is_file()
        ]
    assert set((ROOT / "docs").rglob("*.md")) <= reached
