"""A copy of the project with a cache of its own, and the command line run in it as a person would run it."""

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import program

PROJECT = Path(__file__).resolve().parent.parent.parent
PARTS = (
    "graphcrate",
    "doctor",
    "recipes",
    "images",
    "examples",
    "suites",
    "tools",
    "Makefile",
    "build.py",
    "README.md",
    "pyproject.toml",
)
CPU_INDEX = "https://download.pytorch.org/whl/cpu/torch/"
REQUIREMENTS = ("requirements.txt", "requirements-dev.txt")


def call(*command, environment=None, timeout=900):
    """stdout of a program that has to succeed."""
    done = subprocess.run(
        [program(command[0]), *map(str, command[1:])],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@dataclass(frozen=True)
class Finished:
    """A command that ended: its exit code, its result (stdout) and what was for eyes (stderr)."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class Workplace:
    """Where the command line runs. `prefix` goes before each command (another user, no network)."""

    folder: Path
    cache: Path
    environment: dict = field(default_factory=dict)
    prefix: tuple = ()
    program: tuple = (sys.executable, "-E", "-s", "-m", "graphcrate.cli.main")

    def start(self, *arguments):
        """Start the command in a process group of its own."""
        return subprocess.Popen(
            [*self.prefix, *self.program, *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, "GRAPHCRATE_CACHE": str(self.cache), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def run(self, *arguments, timeout=1500):
        """Run the command to its end."""
        return finish(self.start(*arguments), timeout)

    def layout(self, report):
        """The OCI layout of a report (its path is relative to where the command ran)."""
        return self.folder / report["layout"]

    def leftovers(self):
        """What a command left half-written, in the cache and beside the image. Locks are empty files that stay."""
        found = [*(self.cache / "tmp").rglob("*"), *(self.folder / "dist").rglob(".*")]
        return [path for path in found if path.is_file() and path.suffix != ".lock"]


def finish(process, timeout=1500):
    """Wait for a command; end all that it started if it takes too long or the test is interrupted."""
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        kill(process)
        raise
    return Finished(process.returncode, out, err)


def kill(process):
    """kill -9 for the command and all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def copy_project(destination):
    """The files that a clone has, as far as a build needs them."""
    destination.mkdir(parents=True)
    for name in (*PARTS, *REQUIREMENTS):
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, destination / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, destination / name)
    return destination


def seed(source, target, folders):
    """Give a new cache the finished files of another one: hard links, in folders of its own."""
    for name in folders:
        for path in (source / name).rglob("*"):
            into = target / path.relative_to(source)
            if path.is_dir() and not path.is_symlink():
                into.mkdir(parents=True, exist_ok=True)
            else:
                into.parent.mkdir(parents=True, exist_ok=True)
                os.link(path, into, follow_symlinks=False)


def seed_base(source, target):
    """Give a new cache the finished bases of another one, with their layers."""
    seed(source, target, ["bases"])
    for record in (source / "bases").glob("debian/*/layer.json"):
        blob = Path("blobs/sha256", json.loads(record.read_text())["digest"].removeprefix("sha256:"))
        (target / blob).parent.mkdir(parents=True, exist_ok=True)
        os.link(source / blob, target / blob)


def wheel_folder():
    """A folder that has PyTorch's CPU build for the image's Python: WHEELS, else one of pip's own; None without."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    )
    found = [line.partition("=")[2].strip("'") for line in listed.stdout.splitlines() if "find-links=" in line]
    for folder in " ".join([os.environ.get("WHEELS", ""), *found]).split():
        if any(Path(folder).glob("torch-*+cpu-cp311-cp311-*x86_64.whl")):
            return folder
    return None


@functools.cache
def versions():
    """Options for the smallest PyTorch that this machine gets: from a folder, PyTorch's own index, else for CUDA."""
    if folder := wheel_folder():
        return ("--cuda", "cpu", "--wheels", folder)
    with contextlib.suppress(OSError), urllib.request.urlopen(CPU_INDEX, timeout=10):
        return ("--cuda", "cpu", "--channel", "pytorch")
    return ("--cuda", "11.7")


def small_stack():
    """What to ask for to get the smallest real image that can be made here."""
    return ("torch", *versions())


def pyg_stack(extensions="none"):
    """What to ask for to get the smallest real image with PyG: without compiled extensions, which take minutes."""
    return ("pyg", *versions(), "--extensions", extensions)
