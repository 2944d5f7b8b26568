"""Programs of another processor: what has the kernel start them by an emulator, in a box alone or on the whole host.

From Linux 6.7 on a user namespace has its own binfmt_misc: what is registered there is its own, and goes with it.
"""

from pathlib import Path
from typing import NamedTuple

REGISTERED = Path("/proc/sys/fs/binfmt_misc")
#: of a registration: the emulator is opened when it is registered, so that a root file system need not have it
FIXED = "F"
#: the first kernel that gives a user namespace a binfmt_misc of its own
SINCE = "6.7"
_ELF = b"\x7fELF\x02\x01\x01" + bytes(9)  #: 64 bits, little-endian, version 1; the ABI is System V's or Linux's
_EXECUTABLE = 2  #: e_type; 3, a shared object or a position-independent program, differs from it in the lowest bit
_MASK = b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe\xff\xff\xff"


class Emulator(NamedTuple):
    """A static program of this machine that runs those of another processor."""

    program: Path
    name: str  #: of the registration: "qemu-aarch64"
    elf_number: int  #: e_machine of the programs that it runs

    @property
    def orders(self) -> dict[str, str]:
        """Return what `namespaces` registers: the `program`, and what stands before and behind its path in the line
        that binfmt_misc takes (the kernel's admin-guide/binfmt-misc).
        """
        kind = _EXECUTABLE.to_bytes(2, "little") + self.elf_number.to_bytes(2, "little")
        magic, mask = (_escaped(part) for part in (_ELF + kind, _MASK))
        before, behind = f":{self.name}:M::{magic}:{mask}:", f":{FIXED}"
        return {"program": str(self.program), "before": before, "behind": behind}


def is_registered(elf_number: int, folder: Path = REGISTERED) -> bool:
    """Return whether this host's kernel starts programs of a processor in any root file system (flag F)."""
    try:
        texts = [
            path.read_text(errors="replace") for path in folder.iterdir() if path.name not in ("register", "status")
        ]
    except OSError:
        return False
    return any(_serves(text, elf_number) for text in texts)


def _serves(text: str, elf_number: int) -> bool:
    """Return whether a registration, as the kernel shows it, is in force for a processor's programs."""
    lines = text.splitlines()
    words = dict(line.partition(" ")[::2] for line in lines)
    magic = bytes.fromhex(words["magic"]) if set(words.get("magic", "-")) <= set("0123456789abcdef") else b""
    is_for = magic[:7] == _ELF[:7] and magic[18:20] == elf_number.to_bytes(2, "little")
    return lines[:1] == ["enabled"] and is_for and FIXED in words.get("flags:", "")


def _escaped(data: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in data)
