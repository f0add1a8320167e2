"""Scenario files: commands with the exact trace that each gives.

    # A comment, which says what is to be seen.
    command and its words
    more lines that belong to it
    ----
    the trace, up to the next empty line

Rules: a file is one story, played from its top. What a command prints has no empty lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.core_script import Script

if TYPE_CHECKING:
    from pathlib import Path

DIVIDER = "----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One command: what stands before it, itself, and what it should print."""

    before: list[str]
    command: list[str]
    expected: list[str]
    line: int


def read_scenes(text: str) -> tuple[list[Scene], list[str]]:
    """Return the scenes of a file, and the lines behind the last one."""
    scenes: list[Scene] = []
    lines = text.splitlines()
    at = 0
    before: list[str] = []
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            before.append(lines[at])
            at += 1
            continue
        start = at
        divider = lines.index(DIVIDER, at)
        at = divider + 1
        while at < len(lines) and lines[at].strip():
            at += 1
        scenes.append(
            Scene(
                before=before,
                command=lines[start:divider],
                expected=lines[divider + 1 : at],
                line=start + 1,
            )
        )
        before = []
    return scenes, before


def play(path: Path) -> tuple[str, list[str]]:
    """Play a file; return it with the traces that it gave, and where they differ from what stands there."""
    scenes, rest = read_scenes(path.read_text(encoding="utf-8"))
    script = Script()
    written: list[str] = []
    differences: list[str] = []
    for scene in scenes:
        got = _play_scene(script, scene, path)
        if got != scene.expected:
            differences.append(
                f"{path.name}:{scene.line}: {scene.command[0]}\n"
                + "\n".join(_diff(scene.expected, got))
            )
        written += [*scene.before, *scene.command, DIVIDER, *got]
    return "\n".join([*written, *rest]) + "\n", differences


def _play_scene(script: Script, scene: Scene, path: Path) -> list[str]:
    try:
        return script.play(scene.command[0], scene.command[1:])
    except Exception as error:
        error.add_note(f"{path.name}:{scene.line}: {scene.command[0]}")
        raise


def _diff(expected: list[str], got: list[str]) -> list[str]:
    return [
        *(f"  - {line}" for line in expected if line not in got),
        *(f"  + {line}" for line in got if line not in expected),
        *(["  the order is another"] if sorted(expected) == sorted(got) else []),
    ]


__all__ = ["DIVIDER", "Scene", "play", "read_scenes"]
