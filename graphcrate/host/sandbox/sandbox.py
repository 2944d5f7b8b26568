"""Runs a command inside a root file system with no engine: no daemon, no root, nothing left mounted.

`nsbox` isolates it; what each step gets is in `host.sandbox.steps`, and GPUs, the time-out and its output are added
here. It keeps attackers in: docs/sandbox.md has what they tried."""

import functools
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from graphcrate.host import arguments, process
from graphcrate.host.disk.os_errors import MachineError
from graphcrate.host.sandbox import attach, emulation
from graphcrate.host.sandbox import gpu as gpus
from graphcrate.host.sandbox.emulation import Emulator
from graphcrate.host.sandbox.steps import Step
from graphcrate.model.command import AGAIN, command, for_shell, setting
from graphcrate.model.errors import HostError
from nsbox import box
from nsbox.box import Bind
from nsbox.errors import BoxError, NoEmulatorError, NoRootError, NotIsolatedError

HOST_NAME = "graphcrate"  #: inside, where there is no network
HOSTS = "127.0.0.1\tlocalhost {name}\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_AGAIN = f"{command('cache', free='bases')}    (the next run makes the base again)"


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
    boxed = box.Box(
        rootfs=rootfs,
        argv=command.argv,
        needs=command.step.value,
        environment=variables,
        cwd=command.cwd,
        binds=binds,
        files={} if command.step.value.changes_root else network_files(command.network),
        network=command.network,
        emulator=command.emulator.boxed if command.emulator else None,
        host_name=HOST_NAME,
    )
    title = " ".join(["sandbox:", *(Path(word).name for word in command.argv[:3])])
    run = functools.partial(
        process.run, on_line=command.on_line, timeout=command.timeout, silence=command.silence, title=title
    )

    def start(argv: Sequence[str], descriptor: int) -> process.Completed:
        line = arguments.line(*argv)
        if command.attached:
            return process.Completed(attach.run(line, descriptors=(descriptor,), ends=command.ends), ())
        return run(line, descriptors=(descriptor,))

    try:
        return box.run(boxed, start)
    except BoxError as error:
        raise explain(error, command.emulator) from error


def check(rootfs: Path, binds: Sequence[Bind]) -> None:
    """Raises HostError for what cannot work: no such bind, a disk that forbids programs."""
    if os.statvfs(rootfs).f_flag & os.ST_NOEXEC:
        raise MachineError(
            f"no program can be run from {rootfs}",
            cause="The file system that holds the cache is mounted with the option noexec.",
            next_step=f"put the cache on another disk: GRAPHCRATE_CACHE=/path {AGAIN}",
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
        return {"/etc/hosts": HOSTS.format(name=HOST_NAME)}
    paths = {name: Path(name) for name in ("/etc/hosts", "/etc/resolv.conf")}
    files = {name: path.read_text(errors="replace") for name, path in paths.items() if path.is_file()}
    return {"/etc/hosts": HOSTS.format(name=socket.gethostname())} | files


def gpu_binds(host: gpus.HostGpu) -> list[Bind]:
    """The devices where they are on the host; libraries and programs in a folder of their own."""
    devices = [Bind(Path(path), path, read_only=False) for path in host.devices]
    libraries = [Bind(Path(path), f"{gpus.LIBRARIES}/{name}") for name, path in host.libraries.items()]
    programs = [Bind(Path(path), f"/usr/bin/{name}") for name, path in host.programs.items()]
    return [*devices, *libraries, *programs]


def explain(error: BoxError, emulator: Emulator | None = None) -> HostError:
    """The same error as one of ours, with the engine that would do."""
    if isinstance(error, NoEmulatorError) and emulator:
        return emulation.refused(emulator.platform.title, error.what)
    if isinstance(error, NoRootError):
        return HostError(error.what, cause=error.cause, next_step=_AGAIN)
    if isinstance(error, NotIsolatedError):
        engine = f"or use an engine that is set up here: {setting(engine='docker')}, podman or apptainer"
        step = f"{error.next_step}    ({engine})"
        return HostError("no command can be run inside the image on this machine", cause=error.cause, next_step=step)
    return HostError(error.what, cause=error.cause, next_step=error.next_step)
