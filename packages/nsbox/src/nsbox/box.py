"""Runs a program in a folder as its root: in a user namespace, else, as root, in a mount namespace.

What happens inside is in `namespaces`. How that program is started, and what becomes of its output, is the caller's:
`run` hands it a command line and a descriptor.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from nsbox import namespaces, seccomp
from nsbox.binfmt import Emulator
from nsbox.errors import Failure, NoEmulatorError, NoRootError, NotIsolatedError, WorkingFolderError, restrictions
from nsbox.needs import CAPABILITIES, Needs

Result = TypeVar("Result")
#: starts a command line with this descriptor open under its own number, and waits for its end
Start = Callable[[Sequence[str], int], Result]


@dataclass(frozen=True)
class Bind:
    """A file or folder of the host that the program sees at `target` (absolute, made where the root lacks it)."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True, kw_only=True)
class Box:
    """A program and what it gets. `rootfs` is its root folder, in which it is root.

    It gets exactly its environment (`HOME` defaults to /tmp/home), empty /tmp, /run and /dev/shm in memory, /proc,
    /sys, a small /dev, the binds, the texts of `files` by path, and what its needs say; the root file system is
    read-only. Without `network` it has the loopback interface alone, where the machine allows that. With
    `needs.changes_root` it changes `rootfs` itself, all but /tmp, /dev, /proc and /sys. `emulator`: runs the programs
    of `rootfs` where they are another processor's.
    """

    rootfs: Path
    argv: Sequence[str]
    needs: Needs
    environment: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    binds: Sequence[Bind] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    emulator: Emulator | None = None
    host_name: str = "nsbox"


def call(argv: Sequence[str], descriptor: int) -> int:
    """Start a program with this process's own streams, and return its exit code."""
    return subprocess.run(argv, pass_fds=(descriptor,), check=False).returncode


def run(box: Box, start: "Start[Result]") -> Result:
    """Run the program to its end by `start`, such as `call`; return what that does.

    The exit code is the program's, 128 + N after signal N. The end of this process ends the program too, and
    nothing stays mounted. Raises NotIsolatedError where this machine allows no isolation, NoRootError,
    WorkingFolderError, NoEmulatorError, and what `start` raises.
    """
    orders, failures = orders_of(box), list[Failure]()
    for kind in ("user", "mount") if os.geteuid() == 0 else ("user",):
        result, failure = start_one({**orders, "kind": kind}, start)
        if failure is None:
            return result
        if failure.stage == namespaces.EMULATOR and box.emulator:
            raise NoEmulatorError(failure.what)
        failures.append(failure)
    if failures[0].stage == "chdir":
        raise WorkingFolderError(
            f"the command's working folder cannot be entered: {failures[0].what}",
            next_step="start from a folder that everybody may enter: cd /tmp",
        )
    raise NotIsolatedError.of(failures, os.geteuid(), restrictions())


def orders_of(box: Box) -> dict[str, Any]:
    """Return what `namespaces` is told, but for the kind of isolation. Raises NoRootError."""
    needs = box.needs
    staging = next((name for name in namespaces.OWN_FOLDERS if (box.rootfs / name).is_dir()), None)
    if box.rootfs.resolve() == Path("/"):
        raise NoRootError(
            "the root file system of this machine itself cannot be a box's", next_step="name a folder with another one"
        )
    if staging is None:
        raise NoRootError(
            f"{box.rootfs} is not a root file system", cause="It has none of /proc, /sys, /dev, /tmp, /run."
        )
    return {
        "rootfs": str(box.rootfs.resolve()),
        "staging": staging,
        "argv": list(box.argv),
        "environment": {"HOME": "/tmp/home", **box.environment},
        "working_folder": box.cwd or "/",
        "binds": [(str(bind.source.resolve()), bind.target, bind.read_only) for bind in box.binds],
        "files": dict(box.files),
        "changes_root": needs.changes_root,
        "network": box.network,
        "host_name": box.host_name,
        "emulator": box.emulator.orders if box.emulator else {},
        "parent": os.getpid(),
        "capabilities": [CAPABILITIES[name] for name in needs.capabilities],
        "internet": needs.internet,
        "writable": writable_places(needs, box.binds),
        "filter": _filter(needs).hex(),
        "asking": _filter(needs, asking=True).hex(),
        "asked": seccomp.asked(os.uname().machine),
        "filter_required": needs.ignored_owners,
    }


def start_one(orders: dict[str, Any], start: "Start[Result]") -> tuple[Result, Failure | None]:
    """Run the program in one kind of isolation; why it did not start, where it did not."""
    encoded = json.dumps(orders).encode()
    with _file_without_name() as post:
        post.write(encoded)
        post.seek(0)
        descriptor = post.fileno()
        result = start((sys.executable, "-I", "-S", namespaces.__file__, str(descriptor)), descriptor)
        post.seek(len(encoded))
        reported = post.read()
    return result, Failure(**json.loads(reported)) if reported else None


def writable_places(needs: Needs, binds: Sequence[Bind]) -> list[str]:
    """The folders in which a program may change files: the second wall's list."""
    if needs.changes_root:
        return ["/"]
    return ["/tmp", "/run", "/dev", "/proc", *(bind.target for bind in binds if not bind.read_only)]


def _file_without_name() -> BinaryIO:
    """A new file that only descriptors lead to: in memory, else (before Linux 3.17) where temporary files are."""
    try:
        return os.fdopen(os.memfd_create("orders"), "w+b", buffering=0)
    except (AttributeError, OSError):
        return tempfile.TemporaryFile(buffering=0)


@functools.cache
def _filter(needs: Needs, *, asking: bool = False) -> bytes:
    host = os.uname()
    kernel = tuple(int(number) for number in re.findall(r"\d+", host.release)[:2])
    return seccomp.program(needs, host.machine, kernel, asking=asking)
