"""Every code block of README.md and of docs/ works, in its order, as a reader would use it. README.md beside this file has the rules."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.docs_blocks import Block, PageError, blocks
from tests.support.docs_reader import Reader

ROOT = Path(__file__).resolve().parents[2]
#: How many of all blocks may be left out, for reasons that each one gives.
MOST_LEFT_OUT = 0.15

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def pages() -> dict[str, list[Block]]:
    """Return the blocks of all pages that have some, by the page's name."""
    found = {}
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT)
        if listed := list(blocks(name, path.read_text())):
            found[name.as_posix()] = listed
    return found


PAGES = pages()


@pytest.fixture
def reader(tmp_path):
    made = Reader(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_does_what_it_says(reader, name):
    reader.follow_all(PAGES[name])


def test_the_smallest_example_works(reader, tmp_path):
    reader.follow(
        Block(
            page=Path("hello"),
            line=0,
            language="sh",
            word="background",
            text="stepgraph serve --memory",
        )
    )
    text = (ROOT / "examples" / "hello.py").read_text()
    assert len(text.splitlines()) < 40
    reader.follow(Block(page=Path("hello"), line=1, language="python", word="hello.py", text=text))
    reader.follow(Block(page=Path("hello"), line=2, language="sh", word="", text="python hello.py"))
    assert reader.output == "Hello, world!\n"


def test_few_blocks_are_left_out():
    everything = [block for page in PAGES.values() for block in page]
    left_out = [block for block in everything if block.reason]
    listed = "\n".join(f"{block.place}: {block.reason}" for block in left_out)
    print(listed)  # noqa: T201  # shown with -s, or if there are too many
    assert len(left_out) <= MOST_LEFT_OUT * len(everything), listed


@pytest.mark.parametrize(
    "target",
    sorted(
        {
            target
            for page in PAGES.values()
            for block in page
            if block.reason and block.language in {"sh", "bash"}
            for target in re.findall(r"^make ([\w-]+)", block.text, re.MULTILINE)
        }
    ),
)
def test_a_make_target_that_is_not_run_exists(target):
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


# ---- the reader is worth something: what is wrong on a page is found ----------------------------------


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```sh\nfalse\n```\n", "ended with 1"),
        ("```sh fails\ntrue\n```\n", "ended with 0"),
        ("```sh\necho a\n```\n```text\nb\n```\n", "expected"),
        ("```console\n$ echo a\nb\n```\n", "was to say"),
        ("```python\nraise ValueError\n```\n", "ValueError"),
        ("```yaml\nname: [\n```\n", "page.md:1"),
        ("```yaml\nname: g\nstart: a\nnodes: [{id: b, assign: {}}]\n```\n", "UNKNOWN_NODE"),
        ("```yaml broken.yaml\nname: g\nstart: a\nnodes: [{id: a, assign: {}}]\n```\n", "is to be"),
        ("```json\n{\n```\n", "Expecting"),
        ("```proto\nmessage A { Nothing n = 1; }\n```\n", "does not compile"),
        ("```sh background\necho hello\n```\n", "ended"),
        ("```cobol\nDISPLAY\n```\n", "nobody knows"),
    ],
)
def test_what_is_wrong_is_found(reader, page, complaint):
    with pytest.raises((AssertionError, ValueError), match=re.escape(complaint)):
        reader.follow_all(list(blocks(Path("page.md"), page)))


def test_what_is_right_is_taken(reader):
    page = (
        "```sh\necho one; echo two\n```\n```text\no…e\n```\n"
        "```console\n$ cat a.txt\nhello\n$ echo \\\n    x\nx\n```\n"
    )
    saved = "```text a.txt\nhello\n```\n".replace("text", "conf")
    reader.follow_all(list(blocks(Path("page.md"), saved + page)))
    proto = '```proto\nimport "stepgraph/v1/value.proto";\nmessage A { stepgraph.v1.Value v = 1; }\n```\n'
    reader.follow_all(list(blocks(Path("page.md"), proto)))


@pytest.mark.parametrize(
    "page",
    [
        "```sh\ntrue\n",
        "<!-- not run -->\n```sh\ntrue\n```\n",
        "<!-- not run: it is far above -->\n\nMore.\n\n```sh\ntrue\n```\n",
    ],
)
def test_a_block_that_would_be_overlooked_is_refused(page):
    with pytest.raises(PageError):
        list(blocks(Path("page.md"), page))
