"""Regenerate the protobuf code beside the .proto files.

    python scripts/generate.py            write it
    python scripts/generate.py --check    write nothing; fail if it differs from what is committed

Generated code is committed and never edited, so that installing stepgraph needs no compiler. Only
what this script writes may bear a generated file's name: a leftover of a deleted .proto is removed,
and is a difference under --check.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATED = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")
# Enough to see what changed; a version bump of a generator touches every file.
MAX_DIFF_LINES = 60


class GenerationError(Exception):
    """The compiler refused the .proto files; the message is what it printed."""


def generate(protos: Path, out: Path) -> None:
    """Compile every .proto below `protos` into `out`, which must exist.

    Raises GenerationError if the compiler does not accept them.
    """
    # Imported here so that --help and the error of a missing venv stay readable.
    from grpc_tools import protoc  # noqa: PLC0415

    sources = sorted(path.relative_to(protos).as_posix() for path in protos.rglob("*.proto"))
    if not sources:
        return
    # protoc looks its plugins up on PATH, and those of this interpreter must win over others.
    os.environ["PATH"] = os.pathsep.join(
        (str(Path(sys.executable).parent), os.environ.get("PATH", ""))
    )
    well_known = Path(protoc.__file__).parent / "_proto"
    status = protoc.main(
        [
            "protoc",
            f"--proto_path={protos}",
            f"--proto_path={well_known}",
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            f"--mypy_out=quiet:{out}",
            # only_async: the stubs are in terms of grpc.aio alone, so no call needs an ignore.
            f"--mypy_grpc_out=quiet,only_async:{out}",
            *sources,
        ]
    )
    if status != 0:
        raise GenerationError(f"protoc exited with {status}")  # noqa: EM102, TRY003
    remove_empty_services(out)


def remove_empty_services(out: Path) -> None:
    """Delete the _pb2_grpc modules of files that declare no service.

    The plugin writes one for every .proto; they would only be noise to read and to import.
    """
    for module in out.rglob("*_pb2_grpc.py"):
        if "def add_" not in module.read_text():
            module.unlink()
            module.with_suffix(".pyi").unlink(missing_ok=True)


def generated_files(folder: Path) -> dict[Path, str]:
    """Return the text of every generated file below `folder`, by its relative path."""
    return {
        path.relative_to(folder): path.read_text()
        for pattern in GENERATED
        for path in folder.rglob(pattern)
    }


def difference(committed: dict[Path, str], fresh: dict[Path, str]) -> list[str]:
    """Return a unified diff from what is committed to what the generator writes now."""
    lines: list[str] = []
    for path in sorted(committed.keys() | fresh.keys()):
        before, after = committed.get(path), fresh.get(path)
        if before != after:
            lines += difflib.unified_diff(
                (before or "").splitlines(),
                (after or "").splitlines(),
                f"committed/{path}" if before is not None else "missing",
                f"generated/{path}" if after is not None else "no longer generated",
                n=1,
                lineterm="",
            )
            if not before and not after:
                lines.append(f"{path}: empty on one side, absent on the other")
    return lines


def write(protos: Path, committed: dict[Path, str], fresh: dict[Path, str]) -> int:
    """Make the files below `protos` equal to `fresh`; return how many changed."""
    for path in committed.keys() - fresh.keys():
        (protos / path).unlink()
    changed = [path for path, text in fresh.items() if committed.get(path) != text]
    for path in changed:
        (protos / path).write_text(fresh[path])
    return len(changed) + len(committed.keys() - fresh.keys())


def main() -> int:
    """Return the exit status: 0, or 1 if the files differ or don't compile."""
    parser = argparse.ArgumentParser(description="Regenerate the protobuf code.")
    parser.add_argument("--check", action="store_true", help="only compare, and fail if it differs")
    parser.add_argument("--protos", type=Path, default=ROOT / "protos", help="the source root")
    options = parser.parse_args()
    protos: Path = options.protos.resolve()
    with tempfile.TemporaryDirectory() as folder:
        try:
            generate(protos, Path(folder))
        except GenerationError as error:
            print(error, file=sys.stderr)
            return 1
        fresh = generated_files(Path(folder))
    committed = generated_files(protos)
    if not options.check:
        print(f"{len(fresh)} generated files, {write(protos, committed, fresh)} changed")
        return 0
    lines = difference(committed, fresh)
    if lines:
        print("\n".join(lines[:MAX_DIFF_LINES]))
        print("\nThe generated code is not what the .proto files say. Run: make generate")
        return 1
    print(f"{len(fresh)} generated files are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
