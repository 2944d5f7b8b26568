"""Name the walls of a box that this machine lacks: its kernel is too old, or was built or set up without.

Without the others nothing starts: mount, PID, IPC and UTS namespaces, no_new_privs, dropped capabilities.
"""

import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from nsbox import namespaces

PR_SET_SECCOMP, MODE_FILTER = namespaces.PR_SET_SECCOMP, namespaces.SECCOMP_MODE_FILTER


class Wall(NamedTuple):
    """A wall that a machine may lack: since which Linux there is one, and what it keeps from a program inside."""

    name: str
    since: str
    keeps: str
    stands: Callable[[], bool]


def _landlock() -> bool:
    call = ctypes.CDLL(None).syscall
    number, version = ctypes.c_long(namespaces.SYS_LANDLOCK_CREATE), ctypes.c_uint(namespaces.LANDLOCK_VERSION)
    return bool(call(number, None, ctypes.c_size_t(0), version) >= namespaces.LANDLOCK_MOVES)


def _seccomp() -> bool:
    """Return whether the kernel looks for the filter that is not there."""
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(PR_SET_SECCOMP, MODE_FILTER, None, 0, 0)
    return ctypes.get_errno() == errno.EFAULT and os.uname().machine in namespaces.SYS_SECCOMP


def _namespace(name: str) -> Callable[[], bool]:
    return lambda: Path("/proc/self/ns", name).exists()


WALLS = (
    Wall("a filter of calls (seccomp)", "3.5", "calls of the kernel that no step needs", _seccomp),
    Wall("user namespaces", "3.8", "the host's rights, from what runs as root", _namespace("user")),
    Wall("network namespaces", "2.6.29", "the host's network, in steps that have none", _namespace("net")),
    Wall("cgroup namespaces", "4.6", "the names of the host's control groups", _namespace("cgroup")),
    Wall("Landlock", "5.19", "writing outside of the folders of a step, if the mounts should fail", _landlock),
)


def missing(walls: Sequence[Wall] = WALLS) -> list[Wall]:
    """Those that this machine lacks."""
    return [wall for wall in walls if not wall.stands()]


def sentence(lacking: Sequence[Wall], kernel: str) -> str:
    """Word what a user reads before a program starts; empty where all stand."""
    if not lacking:
        return ""
    names = ", ".join(f"{wall.name} (Linux {wall.since})" for wall in lacking)
    return f"fewer walls around the image on this kernel, {kernel}: no {names}"
