"""Errors of this library: a machine on which nothing can be isolated, and what a box cannot be made of."""

import errno
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

#: settings under /proc/sys that can forbid user namespaces: the value that does, the value that allows them
RESTRICTIONS = {
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "user.max_user_namespaces": ("0", "15000"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
}


class Failure(NamedTuple):
    """The failure of the isolation: at which stage, with which errno (0: none)."""

    stage: str
    errno: int
    what: str


class BoxError(Exception):
    """An error of a box: what is wrong, the likely cause and a next step; the last two may be empty."""

    def __init__(self, what: str, *, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what, self.cause, self.next_step = what, cause, next_step

    def __str__(self) -> str:
        parts = {"": self.what, "\ncause: ": self.cause, "\nnext:  ": self.next_step}
        return "".join(f"{label}{text}" for label, text in parts.items() if text)

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), self.what, cause=self.cause, next_step=self.next_step), ()


class NoRootError(BoxError):
    """The folder is not a root file system."""


class WorkingFolderError(BoxError):
    """The program's working folder cannot be entered."""


class NoEmulatorError(BoxError):
    """The kernel refuses to register an emulator here; `what` is what it said."""


class NotIsolatedError(BoxError):
    """Nothing can be isolated on this machine."""

    @classmethod
    def of(cls, failures: Sequence[Failure], uid: int, restrictions: Mapping[str, str]) -> Self:
        """The error for a machine where nothing worked. `restrictions`: those that there are; none without /proc."""
        first = failures[0]
        ask = "ask the machine's administrator for: sysctl -w"
        forbidding = (name for name, (value, _) in RESTRICTIONS.items() if uid != 0 and restrictions.get(name) == value)
        if name := next(forbidding, None):
            cause = f"{name} is {restrictions[name]}, which forbids user namespaces to plain users"
            step = f"{ask} {name}={RESTRICTIONS[name][1]}"
        elif not restrictions or re.search(r"/proc\b", first.what):
            cause = "/proc is not there, or the container around this shell lets nobody mount one"
            step = "as root: mount -t proc proc /proc; "
            step += "or start the container with --security-opt systempaths=unconfined "
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
        return cls("nothing can be isolated on this machine", cause=f"{cause} ({seen}).", next_step=step)


def restrictions() -> dict[str, str]:
    """Read the settings of this machine that can forbid user namespaces."""
    files = {name: Path("/proc/sys", *name.split(".")) for name in RESTRICTIONS}
    return {name: path.read_text().strip() for name, path in files.items() if path.exists()}
