"""File trees of artifacts."""

from typing import Literal

import msgspec

from graphcrate.model.values import AnySha256, Size

Kind = Literal["file", "folder", "symlink", "device", "fifo", "socket"]
#: What an artifact is. A folder or a squashfs may come from any engine.
Form = Literal["layout", "archive", "docker", "podman", "sif", "squashfs", "delta", "folder", "registry"]


class Entry(msgspec.Struct, frozen=True):
    """A path of a tree. A hard link is an entry like its target; times and extended attributes are not kept."""

    kind: Kind
    mode: Size  #: permission bits, 0 to 0o7777; of a symbolic link 0o777
    uid: Size = 0
    gid: Size = 0
    size: Size = 0  #: bytes of a file
    sha256: AnySha256 = ""  #: hex, of a file
    link: str = ""  #: target of a symbolic link; of a device "c 1:3" or "b 8:0"
