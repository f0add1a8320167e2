"""The rule planner: it stands where a language model would, works offline, and uses what the tools really found.

It knows a few kinds of questions (`questions.py`) and has a plan for each: which tools to call, what to look at next, and
how to say what was found. It understands nothing; it finds and quotes.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from examples.demo.findings import Excerpt, Found, Listing, Match
from examples.demo.questions import AboutFile, Count, Definition, Mentions, Topic, Wish, wishes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from examples.demo.seen import Seen

#: How much of what was found is quoted.
MAX_QUOTED = 3
MAX_FILES = 8
LINES_BEFORE = 2
LINES_AFTER = 9

#: What stands before the name of something that is being defined.
DEFINING_WORDS = ("def", "class", "message")
_DEFINES = (
    r"^\s*(?:export |public |private |static |async |pub |abstract |final |type )*"
    r"(?:def|class|message|service|enum|func|fn|function|interface|struct|trait|rpc|const|let|var)\s+{name}\b"
    r"|^\s*{name}\s*(?::[^=]*)?=(?!=)|^\s*#\s*define\s+{name}\b|^{name}:(?:\s|$)"
)
#: Files that repeat what others say: they are looked at last.
_SECONDARY = re.compile(r"(^|/)(tests?|testdata)/|_pb2|\.pyi$|\.lock$|(^|/)CHANGELOG")


def answer(seen: Seen) -> str:
    """Return the answer; while `seen.is_waiting` it is only what can be said so far."""
    asked = wishes(seen.question)
    if not asked:
        return (
            "I can say where something is defined, what a file does, which files mention a text, how many files or lines "
            "there are, and what there is about some words."
        )
    parts = [part for wish in asked if (part := _part(seen, wish))]
    if seen.troubles and not seen.is_waiting:
        parts.append("What went wrong on the way:\n" + _bullets(seen.troubles))
    return "\n\n".join(parts)


def _part(seen: Seen, wish: Wish) -> str:
    match wish:
        case Definition(name):
            return _definition(seen, name)
        case Mentions(text):
            return _mentions(seen, text)
        case AboutFile(name):
            return _about_file(seen, name)
        case Count(pattern, folder):
            return _count(seen, pattern, folder)
        case Topic(words):
            return _topic(seen, words)


# Where is it defined? -------------------------------------------------------------------------------


def _definition(seen: Seen, name: str) -> str:
    short = name.rsplit(".", 1)[-1]
    found = _searches(seen, (f"{word} {short}" for word in DEFINING_WORDS), whole_word=True)
    lines = _defining(found, short)
    if not lines and not seen.is_waiting:
        # Not Python and not protobuf: look at every line with the name.
        lines = _defining(_searches(seen, [short], whole_word=True), short)
    if seen.is_waiting:
        return ""
    if not lines:
        return f"I found no definition of {name}. " + _mentions(seen, short)
    quotes = [_around(seen, line) for line in lines[:MAX_QUOTED]]
    if seen.is_waiting:
        return ""
    head = (
        f"{name} is defined in {lines[0].file}, line {lines[0].line}:"
        if len(lines) == 1
        else f"{name} is defined in {len(lines)} places:"
    )
    more = [f"{each.file}:{each.line}  {each.text.strip()}" for each in lines[MAX_QUOTED:MAX_FILES]]
    return "\n".join([head, *filter(None, quotes), *(["and in", *more] if more else [])])


def _defining(found: Sequence[Found], name: str) -> list[Match]:
    pattern = re.compile(_DEFINES.format(name=re.escape(name)))
    lines = [match for each in found for match in each.matches if pattern.search(match.text)]
    return sorted(lines, key=lambda each: (_is_secondary(each.file), each.file, each.line))


def _around(seen: Seen, match: Match) -> str:
    """Return the lines around one line, as a quote."""
    excerpt = seen.ask(
        "read_file",
        Excerpt,
        path=match.file,
        first_line=match.line,
        last_line=match.line + LINES_AFTER,
    )
    return "" if excerpt is None else _quoted(_definition_only(excerpt))


def _definition_only(excerpt: Excerpt) -> Excerpt:
    """Return an excerpt up to where the next thing begins: a blank line, or less indentation than its first line."""
    kept = excerpt.lines[:1]
    indent = len(kept[0]) - len(kept[0].lstrip()) if kept else 0
    for line in excerpt.lines[1:]:
        if not line.strip() or (
            len(line) - len(line.lstrip()) <= indent and line.lstrip()[0] not in ")}]"
        ):
            break
        kept.append(line)
    return excerpt.model_copy(update={"lines": kept})


# Which files mention it? ----------------------------------------------------------------------------


def _mentions(seen: Seen, text: str) -> str:
    found = seen.ask("search", Found, text=text, whole_word=True)
    if found is not None and not found.total:
        # Perhaps it is written differently, or is a part of a longer word.
        found = seen.ask("search", Found, text=text, ignore_case=True)
    if found is None:
        return ""
    if not found.total:
        return f"None of {found.files_searched} files mentions {text}."
    files = sorted(found.files, key=lambda each: (_is_secondary(each.file), -each.count, each.file))
    firsts = [_first_line(seen, found, each.file) for each in files[:MAX_FILES]]
    if seen.is_waiting:
        return ""
    lines = [
        f"{_lines(each.count)} of {each.file}{first}"
        for each, first in zip(files, firsts, strict=False)
    ]
    rest = len(files) - len(lines)
    tail = [f"and {_files(rest)} more"] if rest > 0 else []
    head = (
        f"{_files(len(files))} of {found.files_searched} mention {text}, in {_lines(found.total)}:"
    )
    return head + "\n" + _bullets([*lines, *tail])


def _first_line(seen: Seen, found: Found, file: str) -> str:
    """Return the first line of a file that was found; a result that was cut may not have it, then the file is searched."""
    matches = [each for each in found.matches if each.file == file]
    if not matches and found.cut:
        again = seen.ask("search", Found, text=found.text, path=file, ignore_case=True)
        matches = again.matches if again else []
    return f", first in line {matches[0].line}: {matches[0].text.strip()[:90]}" if matches else ""


# What does a file do? -------------------------------------------------------------------------------


def _about_file(seen: Seen, name: str) -> str:
    path = PurePosixPath(name)
    listing = seen.ask("list_files", Listing, path=".", pattern=path.name)
    if listing is None:
        return ""
    fitting = [each for each in listing.files if each.path.endswith(name)] or listing.files
    if not fitting:
        return f"There is no file {name} in the folder."
    files = sorted(fitting, key=lambda each: (_is_secondary(each.path), each.path.count("/")))
    parts = [_one_file(seen, each.path) for each in files[:MAX_QUOTED]]
    if len(files) > 1:
        parts.insert(0, f"There are {len(files)} files {name}.")
    return "\n".join(filter(None, parts))


def _one_file(seen: Seen, path: str) -> str:
    head = seen.ask("read_file", Excerpt, path=path)
    stem = PurePosixPath(path).stem
    users = seen.ask("search", Found, text=stem, whole_word=True) if len(stem) > 2 else None
    if head is None or seen.is_waiting:
        return ""
    opening = _opening(head)
    said = [
        f"{path} has {_lines(head.total_lines)}. It begins:",
        _quoted(head.model_copy(update={"lines": opening, "first_line": 1})),
    ]
    defined = [
        found.group(1)
        for line in head.lines
        if (
            found := re.match(
                r"(?:async )?(?:def|class|message|service|enum|func|fn)\s+(\w+)", line
            )
        )
    ]
    if defined:
        said.append(f"It defines {', '.join(defined[:MAX_FILES])}.")
    others = [each.file for each in users.files if each.file != path] if users else []
    if others:
        shown = sorted(others, key=_is_secondary)[:MAX_QUOTED]
        said.append(f"{stem} is mentioned in {_files(len(others))}, such as {', '.join(shown)}.")
    return "\n".join(said)


def _opening(head: Excerpt) -> list[str]:
    """Return how a file says what it is: its docstring, or its first lines up to a blank one."""
    lines: list[str] = []
    documented = bool(head.lines) and head.lines[0].startswith('"""')
    for line in head.lines[:LINES_AFTER]:
        if not line.strip() and not documented and sum(map(len, lines)) > 60:
            break
        lines.append(line)
        if documented and line.endswith('"""'):
            break
    while lines and not lines[-1].strip():
        lines.pop()
    return lines


# How many? ------------------------------------------------------------------------------------------


def _count(seen: Seen, pattern: str, folder: str) -> str:
    top = seen.ask("list_files", Listing, path=folder, pattern=pattern)
    if top is None:
        return ""
    parts = [
        seen.ask("list_files", Listing, path=each, pattern=pattern)
        for each in top.folders[:MAX_FILES]
    ]
    if seen.is_waiting:
        return ""
    what = "files" if pattern == "*" else f"{pattern} files"
    where = "The folder" if folder == "." else folder
    counted = [each for each in parts if each is not None and each.total_files]
    rows = [
        f"{each.path}: {_files(each.total_files)}, {_lines(each.total_lines)}" for each in counted
    ]
    largest = max(top.files, key=lambda each: each.lines, default=None)
    tail = ""
    if largest is not None and not top.cut:
        tail = f"\nThe longest is {largest.path} with {_lines(largest.lines)}."
    return (
        f"{where} has {top.total_files:,} {what} with {_lines(top.total_lines)} and {top.total_bytes:,} bytes:\n"
        + _bullets(rows)
        + tail
    )


# Anything else --------------------------------------------------------------------------------------


def _topic(seen: Seen, words: Sequence[str]) -> str:
    found = _searches(seen, words, ignore_case=True)
    if seen.is_waiting:
        return ""
    known = [each for each in found if each.total]
    if not known:
        return f"I found nothing about {_and(words)}."
    best = _best_files(known)[:MAX_QUOTED]
    excerpts = [_read_around(seen, each, known) for each in best]
    if seen.is_waiting:
        return ""
    counts = [f"{each.text} in {_lines(each.total)} of {_files(len(each.files))}" for each in known]
    missing = [each.text for each in found if not each.total]
    head = f"I found {_and(counts)}" + (f", and nothing about {_and(missing)}" if missing else "")
    return "\n".join([f"{head}. The files that fit best:", *filter(None, excerpts)])


def _best_files(found: Sequence[Found]) -> list[str]:
    """Return files by how many of the words they have, then by how often."""
    scores: dict[str, tuple[int, int]] = {}
    for each in found:
        for file in each.files:
            words, lines = scores.get(file.file, (0, 0))
            named = each.text.lower() in file.file.lower()
            scores[file.file] = (words + 1 + named, lines + min(file.count, 20))
    return sorted(
        scores, key=lambda file: (_is_secondary(file), -scores[file][0], -scores[file][1], file)
    )


def _read_around(seen: Seen, file: str, found: Iterable[Found]) -> str:
    lines = [match.line for each in found for match in each.matches if match.file == file]
    first = max(1, min(lines, default=1) - LINES_BEFORE)
    excerpt = seen.ask(
        "read_file", Excerpt, path=file, first_line=first, last_line=first + LINES_AFTER
    )
    return "" if excerpt is None else _quoted(excerpt)


# Words ----------------------------------------------------------------------------------------------


def _searches(seen: Seen, texts: Iterable[str], **options: bool) -> list[Found]:
    """Search for several texts at once; what is known of them."""
    found = [seen.ask("search", Found, text=text, **options) for text in texts]
    return [each for each in found if each is not None]


def _quoted(excerpt: Excerpt) -> str:
    """Return an excerpt with its file and line numbers."""
    width = len(str(excerpt.first_line + len(excerpt.lines)))
    lines = [
        f"    {number:>{width}} | {line}".rstrip()
        for number, line in enumerate(excerpt.lines, start=excerpt.first_line)
    ]
    return "\n".join([f"  {excerpt.file}:{excerpt.first_line}", *lines])


def _is_secondary(file: str) -> bool:
    return _SECONDARY.search(file) is not None


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _lines(count: int) -> str:
    return f"{count:,} line{'' if count == 1 else 's'}"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
