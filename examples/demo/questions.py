"""What a question asks for: the kinds that the rule planner knows, and how it tells them apart.

Rules: pure text. A question may ask for several things ("where is X defined, and which files use it?"); a part without a
subject of its own is about the subject of the part before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

#: The most things that one question may ask for; more would be more searches than anybody reads.
MAX_PARTS = 3
MAX_WORDS = 4


@dataclass(frozen=True, slots=True)
class Definition:
    """Where is something defined?"""

    name: str


@dataclass(frozen=True, slots=True)
class Mentions:
    """Which files mention something?"""

    text: str


@dataclass(frozen=True, slots=True)
class AboutFile:
    """What does a file do?"""

    name: str


@dataclass(frozen=True, slots=True)
class Count:
    """How many files, or lines, are there?"""

    pattern: str
    folder: str


@dataclass(frozen=True, slots=True)
class Topic:
    """Something else: what is there about these words?"""

    words: tuple[str, ...]


Wish: TypeAlias = Definition | Mentions | AboutFile | Count | Topic

_KINDS = {
    "python": "*.py",
    "yaml": "*.yaml",
    "proto": "*.proto",
    "protobuf": "*.proto",
    "markdown": "*.md",
    "json": "*.json",
    "toml": "*.toml",
    "sql": "*.sql",
    "javascript": "*.js",
    "typescript": "*.ts",
    "go": "*.go",
    "rust": "*.rs",
    "java": "*.java",
    "text": "*.txt",
}
_COUNTED = re.compile(r"\b(how (many|much|big|large)|number of|count)\b", re.IGNORECASE)
_DEFINED = re.compile(r"\b(defin\w*|declar\w*|implement\w*)\b", re.IGNORECASE)
_USED = re.compile(
    r"\b(mention\w*|us(e|es|ed|ing)|call(s|ed|ing)?|contain\w*|import\w*|refer\w*|occur\w*)\b",
    re.IGNORECASE,
)
_CALLED = re.compile(r"\bcall(s|ed|ing)?\b", re.IGNORECASE)
_PARTS = re.compile(r"[?;!]+\s*|,?\s+and\s+(?=(?:which|what|where|who|how)\b)", re.IGNORECASE)
_QUOTED = re.compile(r"`([^`]+)`|\"([^\"]+)\"|(?<!\w)'([^']+)'(?!\w)")
_FILE = re.compile(r"(?<![\w/.])[\w./-]*\w\.[A-Za-z][A-Za-z0-9]{0,5}(?![\w/])")
_WORD = re.compile(r"[\w./-]*\w")
_CODE = re.compile(r"\w+_\w+|[a-z]+[A-Z]\w*|[A-Z]\w*[a-z]\w*[A-Z]\w*|\w+\.\w+")
_NOT_SUBJECTS = frozenset(
    re.findall(
        r"\w+",
        """a about all an and any are argument at be by can class classes code constant could count declaration describe did
        do does each enum every explain file files find folder for from function functions get gets give has have here how i
        in inside into is it its line lines list located many me message method methods module much number of on or please
        project repository say show source tell test tests text that the their them then there these they thing this those
        to type under user variable was were what when where which who why with without work works would you your""",
    )
)


def wishes(question: str) -> list[Wish]:
    """Return what a question asks for; at least one thing, if it has any word to look for."""
    found: list[Wish] = []
    subject = ""
    for part in _PARTS.split(question):
        if not part.strip():
            continue
        subject = _subject(part) or subject
        wish = _wish(part, subject)
        if wish is not None and wish not in found:
            found.append(wish)
    return found[:MAX_PARTS]


def _wish(part: str, subject: str) -> Wish | None:
    file = _file(part)
    if _DEFINED.search(part) and subject and subject != file:
        return Definition(subject)
    if _CALLED.search(part) and subject.isidentifier():
        return Mentions(f"{subject}(")
    if _USED.search(part) and subject:
        return Mentions(subject)
    if _COUNTED.search(part):
        # "how many lines does Makefile have": a file without a suffix.
        file = file or (subject if re.search(r"\blines (does|do|are in|has|of)\b", part) else "")
        return AboutFile(file) if file else Count(_pattern(part), _folder(part))
    if file:
        return AboutFile(file)
    words = keywords(part) or ((subject,) if subject else ())
    return Topic(words) if words else None


def keywords(text: str) -> tuple[str, ...]:
    """Return the words of a text that say what it is about: what is quoted first, then the longest."""
    quoted = _quoted(text)
    rest = [word for word in _WORD.findall(_QUOTED.sub(" ", text)) if _is_subject(word)]
    ordered = sorted(dict.fromkeys(rest), key=len, reverse=True)
    return tuple(dict.fromkeys([*quoted, *ordered]))[:MAX_WORDS]


def _subject(text: str) -> str:
    """Return what a part is about: what is quoted, what looks like code, else its last telling word."""
    quoted = _quoted(text)
    if quoted:
        return quoted[0]
    words = [word for word in _WORD.findall(text) if _is_subject(word)]
    code = [word for word in words if _CODE.fullmatch(word)]
    return code[0] if code else words[-1] if words else ""


def _quoted(text: str) -> list[str]:
    return ["".join(groups).removesuffix("()") for groups in _QUOTED.findall(text)]


def _file(text: str) -> str:
    found = _FILE.search(text)
    return found.group() if found else ""


def _is_subject(word: str) -> bool:
    verb = _USED.fullmatch(word) or _DEFINED.fullmatch(word)
    return len(word) > 1 and not verb and word.lower() not in _NOT_SUBJECTS


def _pattern(text: str) -> str:
    """Return the pattern of the files that are counted."""
    for word in _WORD.findall(text.lower()):
        if word in _KINDS:
            return _KINDS[word]
    suffix = re.search(r"(?<!\w)\*?(\.[A-Za-z0-9]+)\b", text)
    return f"*{suffix.group(1)}" if suffix else "*"


def _folder(text: str) -> str:
    """Return the folder that a part names: `in server`, `under docs/api`; else all of it."""
    found = re.search(r"\b(?:in|under|inside|below)\s+(?:the\s+)?[`'\"]?([\w./-]*\w)", text)
    if not found or not _is_subject(found.group(1)) or found.group(1).lower() in _KINDS:
        return "."
    return found.group(1).rstrip("/")
