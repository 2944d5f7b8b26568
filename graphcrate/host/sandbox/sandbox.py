"""Runs a command inside a root file system with no engine: no daemon, no root, nothing left mounted.

In a user namespace (plain user or root), else in a mount namespace (root with CAP_SYS_ADMIN). What happens inside is in
`host.sandbox.namespaces`, what each step gets in `host.sandbox.steps`. It keeps attackers in: docs/sandbox.md has what
they tried."""

import errno
import functools
import json
import math
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from graphcrate.host import arguments, process
from graphcrate.host.arguments import Argv
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.host.sandbox import attach, emulation, namespaces, seccomp
from graphcrate.host.sandbox import gpu as gpus
from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.host.sandbox.steps import CAPABILITIES, Step
from graphcrate.model import codec
from graphcrate.model.command import IMAGE_AGAIN, command, for_shell, setting
from graphcrate.model.errors import HostError

HOSTS = "127.0.0.1\tlocalhost {name}\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_AGAIN = f"{command('cache', free='bases')}    (the next run makes the base again)"
#: settings under /proc/sys that can forbid user namespaces: the value that does, the value that allows them
RESTRICTIONS = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "15000"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
}


class Bind(msgspec.Struct, frozen=True):
    """A file or folder of the host that the command sees at `target` (absolute, made where the image lacks it)."""

    source: Path
    target: str
    read_only: bool = True


@dataclass(frozen=True)
class Exec:
    """A command to run in an image, and what it gets. `environment` goes over the image's own variables.

    `cwd` empty: the runner's default. `gpu`: all GPUs, where there are any. `attached` leaves it this process's
    terminal (no lines, no time-out), and it ends when `ends` says so (not by an engine with a store). `nodes`: of a job
    of Slurm, on each of which it runs once, with the node's network and its devices for RDMA (pyxis and Apptainer
    alone). `silence`: seconds without a line after which it is taken to hang (our own sandbox alone). `on_line` hears
    stdout and stderr, merged. `step`: what the sandbox grants it.
    `emulator`: what runs the image's programs where they are another processor's (our own sandbox alone).
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    binds: Sequence[Bind] = ()
    cwd: str = ""
    network: bool = False
    gpu: bool = False
    attached: bool = False
    ends: Callable[[], bool] | None = None
    nodes: int = 1
    timeout: float | None = None
    silence: float = math.inf
    on_line: Callable[[str], None] | None = None
    step: Step = Step.SMOKE
    emulator: Emulator | None = None


class Inside(Protocol):
    """An image that commands can be run in. Nothing that they do changes it."""

    def run(self, command: Exec) -> process.Completed:
        """Run it with the image's variables; the image's entry point or run script is not used.

        Exit code 128 + N after signal N. Raises BuildError after the time-out, HostError where nothing can be run.
        """


class Failure(msgspec.Struct, frozen=True):
    """The failure of the isolation: at which stage, with which errno (0: none)."""

    stage: str
    errno: int
    what: str


def run_in(rootfs: Path, command: Exec) -> process.Completed:
    """Run a command with `rootfs` as its root folder, as root inside; exit code 128 + N after signal N.

    It gets exactly its environment (`HOME` defaults to /tmp/home), empty /tmp, /run and /dev/shm in memory, /proc,
    /sys, a small /dev, the binds, and what its step needs; the root file system is read-only. Without a network it has
    the loopback interface alone, where the machine allows that. `Step.INSTALL` changes `rootfs` itself, all but /tmp,
    /dev, /proc and /sys, and calls that change owners succeed without doing anything: a plain user has one number.
    Raises HostError when this machine allows no isolation, BuildError after the time-out, SilenceError after silence.
    """
    binds, variables = command.binds, {"HOME": "/tmp/home", **command.environment}
    if command.gpu:
        host = gpus.detect()
        binds = [*binds, *gpu_binds(host)]
        variables = gpus.extend(variables, host)
    check(rootfs, binds)
    needs = command.step.value
    orders: dict[str, Any] = {
        "rootfs": str(rootfs.resolve()),
        "staging": next(name for name in namespaces.OWN_FOLDERS if (rootfs / name).is_dir()),
        "argv": list(command.argv),
        "environment": variables,
        "working_folder": command.cwd or "/",
        "binds": [(str(bind.source.resolve()), bind.target, bind.read_only) for bind in binds],
        "files": {} if needs.changes_root else network_files(command.network),
        "changes_root": needs.changes_root,
        "network": command.network,
        "emulator": command.emulator.orders if command.emulator else {},
        "parent": os.getpid(),
        "capabilities": [CAPABILITIES[name] for name in needs.capabilities],
        "internet": needs.internet,
        "writable": writable_places(command.step, binds),
        "filter": _filter(command.step).hex(),
        "asking": _filter(command.step, asking=True).hex(),
        "asked": seccomp.asked(os.uname().machine),
        "filter_required": needs.ignored_owners,
    }
    title = " ".join(["sandbox:", *(Path(word).name for word in command.argv[:3])])
    run = functools.partial(
        process.run, on_line=command.on_line, timeout=command.timeout, silence=command.silence, title=title
    )
    attached = functools.partial(_attached, ends=command.ends)
    failures = []
    for kind in ("user", "mount") if os.geteuid() == 0 else ("user",):
        done, failure = _start({**orders, "kind": kind}, attached if command.attached else run)
        if failure is None:
            return done
        if failure.stage == namespaces.EMULATOR and command.emulator:
            raise emulation.refused(command.emulator.platform.title, failure.what)
        failures.append(failure)
    raise explain(failures, os.geteuid(), _restrictions())


def _attached(argv: Argv, *, descriptors: Sequence[int], ends: Callable[[], bool] | None) -> process.Completed:
    return process.Completed(attach.run(argv, descriptors=descriptors, ends=ends), ())


def _start(orders: dict[str, Any], run: Callable[..., process.Completed]) -> tuple[process.Completed, Failure | None]:
    """Run the command; why it did not start, where it did not."""
    encoded = json.dumps(orders).encode()
    with _file_without_name() as post:
        post.write(encoded)
        post.seek(0)
        descriptor = post.fileno()
        argv = arguments.line(sys.executable, "-I", "-S", namespaces.__file__, str(descriptor))
        done = run(argv, descriptors=(descriptor,))
        post.seek(len(encoded))
        reported = post.read()
    return done, codec.decode(reported, Failure) if reported else None


def _file_without_name() -> BinaryIO:
    """A new file that only descriptors lead to: in memory, else (before Linux 3.17) where temporary files are.

    The first temporary file of a process tries the folder with a file of its own, which a kill in between leaves.
    """
    try:
        return os.fdopen(os.memfd_create("orders"), "w+b", buffering=0)
    except (AttributeError, OSError):
        with process.uninterrupted():
            return tempfile.TemporaryFile(buffering=0)


def writable_places(step: Step, binds: Sequence[Bind]) -> list[str]:
    """The folders in which a step may change files: the second wall's list."""
    if step.value.changes_root:
        return ["/"]
    return ["/tmp", "/run", "/dev", "/proc", *(bind.target for bind in binds if not bind.read_only)]


@functools.cache
def _filter(step: Step, *, asking: bool = False) -> bytes:
    host = os.uname()
    kernel = tuple(int(number) for number in re.findall(r"\d+", host.release)[:2])
    return seccomp.program(step.value, host.machine, kernel, asking=asking)


def check(rootfs: Path, binds: Sequence[Bind]) -> None:
    """Raises HostError for what cannot work: not a root file system, no such bind, a disk that forbids programs."""
    if not any((rootfs / name).is_dir() for name in namespaces.OWN_FOLDERS):
        raise HostError(
            f"{rootfs} is not a root file system",
            cause="It has none of /proc, /sys, /dev, /tmp, /run.",
            next_step=_AGAIN,
        )
    if os.statvfs(rootfs).f_flag & os.ST_NOEXEC:
        raise MachineError(
            f"no program can be run from {rootfs}",
            cause="The file system that holds the cache is mounted with the option noexec.",
            next_step=f"put the cache on another disk: GRAPHCRATE_CACHE=/path {IMAGE_AGAIN}",
        )
    check_binds(binds)


def check_binds(binds: Sequence[Bind], separators: str = "") -> None:
    """Raises HostError for a source that is not there, and for a path with one of an engine's `separators` in it."""
    for bind in binds:
        if not bind.source.exists():
            raise HostError(
                f"{bind.source} does not exist, so the image cannot have it as {bind.target}",
                next_step=f"mkdir -p {for_shell(bind.source)}",
            )
        if any(letter in f"{bind.source.resolve()}{bind.target}" for letter in separators):
            raise HostError(
                f"{bind.source.resolve()} cannot be bound into an image",
                cause=f"The engine takes each of {separators!r} in a path for the end of its parts.",
                next_step="move it to a path without them, or set TMPDIR to one",
            )


def network_files(network: bool) -> dict[str, str]:
    """Return the contents of /etc/hosts and /etc/resolv.conf inside."""
    if not network:
        return {"/etc/hosts": HOSTS.format(name=namespaces.HOST_NAME.decode())}
    paths = {name: Path(name) for name in ("/etc/hosts", "/etc/resolv.conf")}
    files = {name: path.read_text(errors="replace") for name, path in paths.items() if path.is_file()}
    return {"/etc/hosts": HOSTS.format(name=socket.gethostname())} | files


def gpu_binds(host: gpus.HostGpu) -> list[Bind]:
    """The devices where they are on the host; libraries and programs in a folder of their own."""
    devices = [Bind(Path(path), path, read_only=False) for path in host.devices]
    libraries = [Bind(Path(path), f"{gpus.LIBRARIES}/{name}") for name, path in host.libraries.items()]
    programs = [Bind(Path(path), f"/usr/bin/{name}") for name, path in host.programs.items()]
    return [*devices, *libraries, *programs]


def explain(failures: Sequence[Failure], uid: int, restrictions: Mapping[str, str]) -> HostError:
    """The error for a machine where nothing worked. `restrictions`: what those that there are; none without /proc."""
    first = failures[0]
    if first.stage == "chdir":
        return HostError(
            f"the command's working folder cannot be entered: {first.what}",
            next_step="start from a folder that everybody may enter: cd /tmp",
        )
    ask = "ask the machine's administrator for: sysctl -w"
    forbidding = (name for name, (value, _) in RESTRICTIONS.items() if uid != 0 and restrictions.get(name) == value)
    if name := next(forbidding, None):
        cause = f"{name} is {restrictions[name]}, which forbids user namespaces to plain users"
        step = f"{ask} {name}={RESTRICTIONS[name][1]}"
    elif not restrictions or re.search(r"/proc\b", first.what):
        cause = "/proc is not there, or the container around this shell lets nobody mount one"
        step = "as root: mount -t proc proc /proc; or start the container with --security-opt systempaths=unconfined "
        step += "(podman: --security-opt unmask=ALL)"
    elif first.errno == errno.ENOSPC:
        cause = "All user namespaces that user.max_user_namespaces allows are in use"
        step = f"{ask} user.max_user_namespaces=15000"
    else:
        lacks = ", and it has no CAP_SYS_ADMIN" if uid == 0 else ""
        cause = f"In the container around this shell a security policy forbids user namespaces{lacks}"
        step = "whoever starts the container can allow them: --privileged, or --cap-add SYS_ADMIN "
        step += "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    seen = "; ".join(f"{failure.stage}: {failure.what}" for failure in failures)
    return HostError(
        "no command can be run inside the image on this machine",
        cause=f"{cause} ({seen}).",
        next_step=f"{step}    (or use an engine that is set up here: {setting(engine='docker')}, podman or apptainer)",
    )


def _restrictions() -> dict[str, str]:
    files = {name: Path("/proc/sys", *name.split(".")) for name in RESTRICTIONS}
    return {name: path.read_text().strip() for name, path in files.items() if path.exists()}
