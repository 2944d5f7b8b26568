"""What kind of file system a path lies on, by the magic number that statfs(2) gives (linux/magic.h, Lustre's own)."""

import ctypes
import os
from pathlib import Path

LUSTRE = 0x0BD00BD0
_ROOM = 512  #: bytes for `struct statfs`, which has 120 on 64-bit Linux


def kind(path: Path) -> int:
    """The magic number; 0 where the machine does not tell."""
    try:
        statfs = ctypes.CDLL(None, use_errno=True).statfs
    except (AttributeError, OSError):
        return 0
    found = ctypes.create_string_buffer(_ROOM)
    if statfs(os.fsencode(path), found) != 0:
        return 0
    return ctypes.c_ulong.from_buffer(found).value  # its first field, as wide as a machine word on x86-64
