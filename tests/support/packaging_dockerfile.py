"""A Dockerfile as data: its stages, and what each one says.

Rules: it knows the instructions that our Dockerfile uses, and refuses others, so that nothing in it goes untested.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Those that become part of the image's configuration: the last one counts.
CONFIGURATION = frozenset({"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "USER"})
#: Those that are carried out one after another.
STEPS = frozenset({"ARG", "COPY", "ENV", "LABEL", "RUN", "WORKDIR"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction, with its flags taken off."""

    name: str
    flags: dict[str, str]
    text: str

    @property
    def words(self) -> list[str]:
        """What it names, such as the places of a COPY."""
        return shlex.split(self.text)

    @property
    def pairs(self) -> dict[str, str]:
        """The names and values of an ENV or LABEL."""
        return dict(word.split("=", 1) for word in self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What stands between one FROM and the next."""

    base: str
    name: str
    steps: list[Step] = field(default_factory=list)

    def configured(self, name: str) -> Step:
        """Return the instruction that the image is configured by."""
        return [step for step in self.steps if step.name == name][-1]

    def command(self, name: str) -> list[str]:
        """Return the words of an instruction in its exec form, which needs no shell in the image."""
        words: list[str] = json.loads(self.configured(name).text.removeprefix("CMD "))
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerfile:
    """All stages, and the arguments before the first."""

    arguments: dict[str, str]
    stages: list[Stage]


def parse(text: str) -> Dockerfile:
    """Read a Dockerfile.

    Raises:
        ValueError: It has an instruction that is not known here.
    """
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for step in _steps(text):
        match step.name:
            case "FROM":
                base, _, name = step.text.partition(" AS ")
                stages.append(Stage(base=_expanded(base, arguments), name=name))
            case "ARG" if not stages:
                arguments |= step.pairs
            case name if name in STEPS | CONFIGURATION and stages:
                stages[-1].steps.append(step)
            case name:
                message = f"an instruction that is not known here: {name}"
                raise ValueError(message)
    return Dockerfile(arguments=arguments, stages=stages)


def _steps(text: str) -> Iterator[Step]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        flags: dict[str, str] = {}
        while found := re.match(r"--([a-z-]+)=(\S+)\s+", rest):
            flags[found[1]] = found[2]
            rest = rest[found.end() :]
        yield Step(name=name, flags=flags, text=re.sub(r"\s{2,}", " ", rest.strip()))


def _expanded(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], text)
