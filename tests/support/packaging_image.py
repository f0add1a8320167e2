"""The image, built and run without a container engine: the steps of the Dockerfile, done by hand.

Layers are overlays on a base, as an engine's are, with a mount and a network namespace of their own; the base is this machine with
the interpreter of the tests in place of `FROM`. What a container may do is held by the kernel then as it is in production: the
user, the read-only root, the volumes, the ports. It needs root and a kernel with overlays; `missing()` says what is not there.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.packaging_dockerfile import Dockerfile, Stage, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
#: Layers stand in memory: an overlay must not lie on itself, and the base is the disk.
MEMORY = Path("/dev/shm")
NEEDED = ("unshare", "nsenter", "chroot", "mount")
LOOPBACK_UP = (
    "import fcntl, socket, struct; "
    "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH22x', b'lo', 1))"
)


def missing() -> str:
    """Say why images can't be built here; empty if they can."""
    lacking = [tool for tool in NEEDED if shutil.which(tool) is None]
    if lacking:
        return f"there is no {', '.join(lacking)}"
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        tried = _in_namespaces(_mounting(Path(folder), [], writable=True) + "\ntrue")
        done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"no namespaces or overlays: {done.stderr.strip()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image: its layer, and the stage that configures it."""

    folder: Path
    layer: Path
    stage: Stage

    @property
    def environment(self) -> dict[str, str]:
        """What ENV says."""
        found = _environment(self.stage)
        return {name: value.replace("$PATH", _PATH) for name, value in found.items()}

    @property
    def user(self) -> str:
        """The user that it runs as, uid:gid."""
        return self.stage.configured("USER").text

    @property
    def health_check(self) -> list[str]:
        """What an engine asks it with."""
        return self.stage.command("HEALTHCHECK")


_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def build(dockerfile: Path, context: Path, folder: Path, cache: Path) -> Image:
    """Carry out the steps of a Dockerfile; layers are laid into `folder`, which must be on another file system than `/`."""
    described: Dockerfile = parse(dockerfile.read_text())
    layers: dict[str, Path] = {}
    for number, stage in enumerate(described.stages):
        place = folder / f"stage-{number}"
        for name in ("upper", "work", "root"):
            (place / name).mkdir(parents=True)
        script = "\n".join(
            [
                _mounting(place, [], writable=True),
                _base(),
                *_carried_out(stage, context, cache, layers),
            ]
        )
        # Packages come over the network.
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-euc", script],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"stage {number} of {dockerfile}:\n{done.stdout[-4000:]}"
        layers[stage.name] = place / "upper"
    return Image(folder=folder, layer=layers[described.stages[-1].name], stage=described.stages[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended, and what it said."""

    code: int
    text: str


class Container:
    """A running container."""

    def __init__(self, image: Image, process: subprocess.Popen[str], log: Path, user: str) -> None:
        self.image = image
        self.process = process
        self._log = log
        self._user = user

    @property
    def log(self) -> str:
        """What it has said so far."""
        return self._log.read_text()

    def run(self, *command: str, stdin: str = "", timeout_s: float = 60) -> Ended:
        """Run a command in it, as `docker exec` does."""
        user, _, group = self._user.partition(":")
        done = subprocess.run(
            [
                *("nsenter", f"--target={self.process.pid}", "--mount", "--net", "--root"),
                *(f"--setuid={user}", f"--setgid={group}"),
                *_clean(self.image, command),
            ],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ended(code=done.returncode, text=done.stdout)

    def healthy(self) -> bool:
        """Ask with the image's own health check."""
        return self.run(*self.image.health_check).code == 0

    def ended(self, timeout_s: float = 60) -> Ended:
        """Wait for its end."""
        return Ended(code=self.process.wait(timeout_s), text=self.log)


@contextmanager
def running(
    image: Image,
    *,
    volume: Path | None = None,
    memory_volume_bytes: int = 0,
    user: str = "",
    read_only: bool = True,
    command: Sequence[str] = (),
) -> Iterator[Container]:
    """Run the image, as `docker run` would.

    Args:
        image: The image.
        volume: A folder of this machine to mount at /data.
        memory_volume_bytes: In place of it: a file system of this size, which can be filled.
        user: Another user than the image's, as uid:gid.
        read_only: Whether its root can't be written.
        command: In place of the image's CMD.
    """
    place = Path(tempfile.mkdtemp(dir=image.folder))
    for name in ("upper", "work", "root"):
        (place / name).mkdir()
    user = user or image.user
    uid, _, gid = user.partition(":")
    mounts = []
    if volume is not None:
        mounts.append(f"mount --bind {shlex.quote(str(volume))} root/data")
    if memory_volume_bytes:
        options = f"size={memory_volume_bytes},uid={uid},gid={gid},mode=700"
        mounts.append(f"mount -t tmpfs -o {options} tmpfs root/data")
    words = [*image.stage.command("ENTRYPOINT"), *(command or image.stage.command("CMD"))]
    script = "\n".join(
        [
            _mounting(place, [image.layer], writable=not read_only),
            *mounts,
            f"{shlex.quote(sys.executable)} -c {shlex.quote(LOOPBACK_UP)}",
            f"exec chroot --userspec={user} --groups= root {shlex.join(_clean(image, words))}",
        ]
    )
    log = place / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            _in_namespaces(script), stdout=output, stderr=subprocess.STDOUT, text=True
        )
    try:
        yield Container(image, process, log, user)
    finally:
        process.kill()
        process.wait()


def _in_namespaces(script: str) -> list[str]:
    return ["unshare", "--mount", "--net", "bash", "-euc", script]


def _mounting(place: Path, layers: Sequence[Path], *, writable: bool) -> str:
    """Return how the layers are put on this machine's root, below `place`, which becomes the working folder."""
    lower = ":".join([*map(str, layers), "/"])
    options = f"lowerdir={lower}"
    options += ",upperdir=upper,workdir=work" if writable else ""
    return "\n".join(
        [
            f"mkdir -p {place}/upper {place}/work {place}/root && cd {place}",
            f"mount -t overlay overlay -o {options} root",
            "mount --rbind /dev root/dev",
            "mount -t proc proc root/proc || mount --rbind /proc root/proc",
        ]
    )


def _base() -> str:
    """Return what makes this machine look like the image of an interpreter: `python`, for every user."""
    python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    closed = [
        folder
        for folder in python.parents
        if not folder.stat().st_mode & stat.S_IXOTH and folder != Path("/")
    ]
    # A link would do for `python`, but not for the environments that it makes: they look for its library beside the link.
    wrapper = f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n'
    return "\n".join(
        [
            *(f"chmod o+x root{shlex.quote(str(folder))}" for folder in closed),
            f"rm -f root/usr/local/bin/python && printf %s {shlex.quote(wrapper)} > root/usr/local/bin/python",
            "chmod 755 root/usr/local/bin/python",
            "rm -rf root/data",
        ]
    )


def _carried_out(
    stage: Stage, context: Path, cache: Path, layers: dict[str, Path]
) -> Iterator[str]:
    """Return the commands of a stage's steps."""
    folder = "/"
    # How the machine reaches its package index is its own affair, and no part of the image.
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    settings.pop("PIP_CONSTRAINT", None)
    variables = {"PATH": _PATH, "HOME": "/root", **settings}
    for step in stage.steps:
        match step.name:
            case "WORKDIR":
                folder = step.text
                yield f"mkdir -p root{folder}"
            case "ENV":
                variables |= {
                    name: value.replace("$PATH", variables["PATH"])
                    for name, value in step.pairs.items()
                }
            case "COPY":
                source = layers[step.flags["from"]] if "from" in step.flags else context
                *names, target = step.words
                into = Path(folder) / target
                for name in names:
                    place = shlex.quote(f"{source}/{name.lstrip('/')}")
                    yield f"if [ -d {place} ]; then mkdir -p root{into} && cp -a {place}/. root{into}/; else cp -a {place} root{into}/; fi"
            case "RUN":
                if "mount" in step.flags:
                    target = step.flags["mount"].rpartition("target=")[2]
                    yield f"mkdir -p root{target} && mount --bind {shlex.quote(str(cache))} root{target}"
                given = [f"{name}={value}" for name, value in variables.items()]
                inside = shlex.join(["env", "-i", "-C", folder, *given, "sh", "-ec", step.text])
                yield f"chroot root {inside}"
            case _:
                pass  # configures the image, or describes it


def _environment(stage: Stage) -> dict[str, str]:
    found: dict[str, str] = {}
    for step in stage.steps:
        if step.name == "ENV":
            found |= step.pairs
    return found


def _clean(image: Image, command: Sequence[str]) -> list[str]:
    """Return a command in the environment of the image, and nothing else of this machine's."""
    given = [f"{name}={value}" for name, value in image.environment.items()]
    return ["env", "-i", "-C", image.stage.configured("WORKDIR").text, *given, *command]
