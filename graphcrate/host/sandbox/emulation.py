"""Programs of another processor: whether this kernel starts them, and how a sandbox has it start them by an emulator.

From Linux 6.7 on a user namespace has its own binfmt_misc: what is registered there is its own, and goes with it.
"""

import os
from pathlib import Path

import msgspec

from graphcrate.model.errors import HostError
from graphcrate.model.platform import DEFAULT, OS, SUPPORTED, Platform, of_machine

REGISTERED = Path("/proc/sys/fs/binfmt_misc")
#: of a registration: the emulator is opened when it is registered, so that a root file system need not have it
FIXED = "F"
#: the first kernel that gives a user namespace a binfmt_misc of its own
SINCE = "6.7"
_ELF = b"\x7fELF\x02\x01\x01" + bytes(9)  #: 64 bits, little-endian, version 1; the ABI is System V's or Linux's
_EXECUTABLE = 2  #: e_type; 3, a shared object or a position-independent program, differs from it in the lowest bit
_MASK = b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe\xff\xff\xff"


class Emulator(msgspec.Struct, frozen=True):
    """Runs programs of `platform` here. `program`: a static one of this machine; None: the host's kernel knows one."""

    platform: Platform
    program: Path | None = None

    @property
    def orders(self) -> dict[str, str]:
        """Return what `host.sandbox.namespaces` registers: the `program`, and what stands before and behind its path in
        the line that binfmt_misc takes (the kernel's admin-guide/binfmt-misc). Nothing where the host's kernel knows
        one.
        """
        if self.program is None:
            return {}
        kind = _EXECUTABLE.to_bytes(2, "little") + self.platform.elf_number.to_bytes(2, "little")
        magic, mask = (_escaped(part) for part in (_ELF + kind, _MASK))
        before, behind = f":{self.platform.qemu}:M::{magic}:{mask}:", f":{FIXED}"
        return {"program": str(self.program), "before": before, "behind": behind}


def is_native(platform: Platform) -> bool:
    """Return whether this machine's processor runs programs of a platform."""
    return os.uname().machine == platform.machine


def this_machine() -> Platform:
    """The platform of this machine, if images are made for it; else the default one."""
    known = of_machine(os.uname().machine)
    return known if known in SUPPORTED else DEFAULT


def is_registered(platform: Platform, folder: Path = REGISTERED) -> bool:
    """Return whether this host's kernel starts programs of a platform in any root file system (flag F)."""
    try:
        texts = [
            path.read_text(errors="replace") for path in folder.iterdir() if path.name not in ("register", "status")
        ]
    except OSError:
        return False
    return any(_serves(text, platform) for text in texts)


def _serves(text: str, platform: Platform) -> bool:
    """Return whether a registration, as the kernel shows it, is in force for a platform's programs."""
    lines = text.splitlines()
    words = dict(line.partition(" ")[::2] for line in lines)
    magic = bytes.fromhex(words["magic"]) if set(words.get("magic", "-")) <= set("0123456789abcdef") else b""
    is_for = magic[:7] == _ELF[:7] and magic[18:20] == platform.elf_number.to_bytes(2, "little")
    return lines[:1] == ["enabled"] and is_for and FIXED in words.get("flags:", "")


def _escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)


def refused(platform_title: str, what: str) -> HostError:
    """The error for a kernel that lets no one register an emulator. `what`: it said."""
    return HostError(
        f"no program for {platform_title} can be run on this machine",
        cause=f"The kernel, {os.uname().release}, has no binfmt_misc for a plain user's namespace, which Linux "
        f"{SINCE} brought, and knows no emulator itself ({what}).",
        next_step="as root, once: apt-get install qemu-user-static    (Debian, Ubuntu: registers one for everybody), "
        f"or build on a machine with {OS.title()} {SINCE} or newer",
    )
