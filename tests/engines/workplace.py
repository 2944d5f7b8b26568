"""A copy of the project with a cache of its own, and the command line run in it as a person would run it."""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field, replace
from pathlib import Path

from graphcrate.host.defects import TRACEBACK
from graphcrate.host.disk.sealed import kept_bytes
from graphcrate.model.command import is_upkeeps
from tests.conftest import ROOT, program

#: what a build needs of a clone
PARTS = (
    "graphcrate",
    "packages",
    "doctor",
    "recipes",
    "targets",
    "images",
    "examples",
    "suites",
    "tools",
    "Makefile",
    "build.py",
    "README.md",
)
PARTS += ("CONTRIBUTING.md", "SECURITY.md", "pyproject.toml", "requirements.txt", "requirements-dev.txt")
CPU_INDEX = "https://download.pytorch.org/whl/cpu/torch/"
_LINK = functools.partial(os.link, follow_symlinks=False)
_half_written = shutil.ignore_patterns("*.pyc.*")


def call(*command, environment=None, folder=None, code=0, timeout=900):
    """stdout of a program that has to end with this exit code; None: with any."""
    done = subprocess.run(
        [program(str(command[0])), *map(str, command[1:])],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=timeout,
        check=False,
    )
    assert code in (None, done.returncode), (done.stdout + done.stderr)[-3000:]
    return done.stdout


def until(condition, seconds=120, process=None):
    """Wait for something that must come about within so many seconds, and while a process runs that is to do it."""
    deadline = time.monotonic() + seconds
    while not _is_true(condition):
        assert process is None or process.poll() is None, "the process ended before"
        assert time.monotonic() < deadline, f"it did not come about within {seconds} s"
        time.sleep(0.05)


def _is_true(condition):
    """Return what a condition says; an entry that goes while its folder is read means "not yet"."""
    try:
        return condition()
    except FileNotFoundError:
        return False


def holder(lock):
    """Return the process that holds the lock of a job of a site's; None where that has ended, or is yet to begin."""
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if lock.exists() and entry.samefile(lock) and os.getsid(number := int(entry.parts[2])) == number:
                return number
    return None


def is_running(pid):
    """Return whether a process runs; one that has ended and was not waited for does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def running(*words):
    """Ids of the processes whose command line begins with these words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_text(errors="replace").split("\0")[: len(words)] == [str(word) for word in words]:
                found.append(int(path.parent.name))
    return found


def below(folder):
    """Yield what is below a folder; what another process removes meanwhile is passed over (`rglob` raises for it)."""
    for inner, folders, files in os.walk(folder):
        yield from (Path(inner, name) for name in (*folders, *files))


def tree(root):
    """path → kind and mode, owner, group, time, content or target, first path of the same file, attributes."""
    first, seen = {}, {}
    for path in sorted(os.fsencode(found) for found in root.rglob("*")):
        status = os.lstat(path)
        name, kind = os.fsdecode(path).removeprefix(f"{root}/"), stat.S_IFMT(status.st_mode)
        content = os.readlink(path) if kind == stat.S_IFLNK else None  # noqa: PTH115 (names that are no text)
        if kind == stat.S_IFREG:
            content = hash(Path(os.fsdecode(path)).read_bytes())
        same = None if kind == stat.S_IFDIR else first.setdefault(status.st_ino, name)
        attributes = {
            key: os.getxattr(path, key, follow_symlinks=False) for key in os.listxattr(path, follow_symlinks=False)
        }
        owner = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, int(status.st_mtime))
        seen[name] = (*owner, content, same, attributes)
    return seen


def without_rights(seen):
    """The entries of a tree as left in a folder that we unpack: no devices, set-user-id bits, capabilities."""
    left = {}
    for name, (mode, *more, attributes) in seen.items():
        if mode[0] in "bc":
            continue
        if mode[0] != "d":
            mode = mode.translate(str.maketrans("sS", "x-"))
        left[name] = (mode, *more, {key: value for key, value in attributes.items() if key.startswith("user.")})
    return left


@dataclass(frozen=True)
class Finished:
    """A command that ended: its exit code, its result (stdout) and what was for eyes (stderr)."""

    code: int
    out: str
    err: str

    def ok(self):
        """Itself: a command that has to have ended well."""
        assert self.code == 0, (self.out + self.err)[-3000:]
        return self

    @property
    def json(self):
        return json.loads(self.ok().out)


@dataclass(frozen=True)
class Workplace:
    """A place to run the command line in. `prefix` goes before each command (another user, no network)."""

    folder: Path
    cache: Path
    environment: dict = field(default_factory=dict)
    prefix: tuple = ()
    program: tuple = (sys.executable, "-E", "-s", "-m", "graphcrate.cli.main")

    def start(self, *arguments):
        """Start the command in a process group of its own."""
        return subprocess.Popen(
            [*self.prefix, *self._program_for(arguments), *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, "GRAPHCRATE_CACHE": str(self.cache), TRACEBACK: "1", **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            start_new_session=True,
        )

    def _program_for(self, arguments):
        """The program of a command: build.py hands upkeep's over."""
        return (*self.program[:-1], "upkeep") if is_upkeeps(arguments) else self.program

    def run(self, *arguments, timeout=1500):
        """Run the command to its end."""
        return finish(self.start(*arguments), timeout)

    def having(self, **variables):
        """The same place with these variables in its environment."""
        return replace(self, environment={**self.environment, **variables})

    def layout(self, report):
        """The OCI layout of a report (its path is relative to where the command ran)."""
        return self.folder / report["layout"]

    def leftovers(self):
        """Half-written files of ended commands, in the cache and beside the image. Locks are empty files that stay.

        Another worker's command may use the same cache now: what it holds is not left.
        """
        places = [path for path in (self.cache / "tmp").glob("*") if not is_held(path)]
        hidden = (path for path in below(self.folder / "dist") if path.name.startswith("."))
        found = [*places, *(inner for path in places for inner in below(path)), *hidden]
        return [path for path in found if path.is_file() and path.suffix != ".lock"]


def is_held(folder):
    """Return whether a running command holds this folder of a cache's tmp/, by its lock; see `living_folder`."""
    try:
        with folder.with_name(f"{folder.name}.lock").open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:  # a lock itself, or the command has ended by now and removed both
        return not folder.exists()
    return False


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
    """The files that a clone has, as far as a build needs them, with the bytecode that is there.

    Else each copy's first command compiles all modules again.
    """
    destination.mkdir(parents=True)
    for name in PARTS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, destination / name, ignore=_half_written)
        else:
            shutil.copy2(source, destination / name)
    return destination


def second_place(workplace, folder, *, base=False, **changes):
    """Another copy of the project with the same lock, and a cache that holds the downloads.

    `base`: the base too, and the bytecode of wheels for it, which takes most of the time of their layers.
    """
    copy, cache = copy_project(folder / "copy"), folder / "cache"
    shutil.copytree(workplace.folder / "images", copy / "images", dirs_exist_ok=True)
    copy_downloads(workplace.cache, cache)
    if base:
        copy_bases(workplace.cache, cache)
        _copy_of_used(workplace.cache / "bytecode", cache / "bytecode", _LINK)
    return Workplace(copy, cache, **changes)


def copy_downloads(cache, other, copy=_LINK):
    """Give another cache the files that one has downloaded."""
    _copy_of_used(cache / "files", other / "files", copy)


def copy_bases(cache, other):
    """Give another cache the bases that one has made, and the lists of their packages."""
    _copy_of_used(cache / "bases", other / "bases", _LINK)
    for record in (other / "bases").glob("debian/*/layer.json"):
        blob = Path("blobs/sha256", json.loads(kept_bytes(record))["digest"].removeprefix("sha256:"))
        if not (other / blob).exists():  # bases of two lists may be the same bytes
            (other / blob).parent.mkdir(parents=True, exist_ok=True)
            os.link(cache / blob, other / blob)


def _copy_of_used(source, target, copy):
    """Copy a folder of a cache that other workers use: a file that is complete meanwhile has another name."""

    def each(path, other):
        with contextlib.suppress(FileNotFoundError):
            copy(path, other)

    shutil.copytree(source, target, copy_function=each, symlinks=True)


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
    """The request for the smallest real image that can be made here."""
    return ("torch", *versions())


def pyg_stack(extensions="none"):
    """The request for the smallest real image with PyG: without compiled extensions, which take minutes."""
    return ("pyg", *versions(), "--extensions", extensions)
