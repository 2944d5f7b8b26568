"""Programs of another processor: whether this kernel starts them, and the emulator by which a sandbox does."""

import os
from pathlib import Path

import msgspec

from graphcrate.model.errors import HostError
from graphcrate.model.platform import DEFAULT, OS, SUPPORTED, Platform, of_machine
from nsbox import binfmt


class Emulator(msgspec.Struct, frozen=True):
    """Runs programs of `platform` here. `program`: a static one of this machine; None: the host's kernel knows one."""

    platform: Platform
    program: Path | None = None

    @property
    def boxed(self) -> binfmt.Emulator | None:
        """Return what the sandbox registers: nothing where the host's kernel knows one."""
        if self.program is None:
            return None
        return binfmt.Emulator(self.program, self.platform.qemu, self.platform.elf_number)


def is_native(platform: Platform) -> bool:
    """Return whether this machine's processor runs programs of a platform."""
    return os.uname().machine == platform.machine


def this_machine() -> Platform:
    """The platform of this machine, if images are made for it; else the default one."""
    known = of_machine(os.uname().machine)
    return known if known in SUPPORTED else DEFAULT


def is_registered(platform: Platform) -> bool:
    """Return whether this host's kernel starts programs of a platform in any root file system."""
    return binfmt.is_registered(platform.elf_number)


def refused(platform_title: str, what: str) -> HostError:
    """The error for a kernel that lets no one register an emulator. `what`: it said."""
    return HostError(
        f"no program for {platform_title} can be run on this machine",
        cause=f"The kernel, {os.uname().release}, has no binfmt_misc for a plain user's namespace, which Linux "
        f"{binfmt.SINCE} brought, and knows no emulator itself ({what}).",
        next_step="as root, once: apt-get install qemu-user-static    (Debian, Ubuntu: registers one for everybody), "
        f"or build on a machine with {OS.title()} {binfmt.SINCE} or newer",
    )
