"""File trees of artifacts, what differs between two of them, and what may."""

from collections.abc import Mapping
from typing import Literal

import msgspec

Kind = Literal["file", "folder", "symlink", "device", "fifo", "socket"]
#: What of an entry differs. `setting`: of the image's configuration, not of a file.
Aspect = Literal["only in the first", "only in the second", "kind", "mode", "owner", "content", "link", "setting"]
#: What an artifact is. A folder or a squashfs may come from any engine.
Form = Literal["layout", "archive", "docker", "podman", "sif", "squashfs", "folder"]
#: In which form two contents are compared where their bytes may differ; see `trees.contents`.
Sameness = Literal["any", "bytecode", "record", "launcher"]


class Entry(msgspec.Struct, frozen=True):
    """A path of a tree. A hard link is an entry like its target; times and extended attributes are not kept."""

    kind: Kind
    mode: int  #: permission bits, 0 to 0o7777; of a symbolic link 0o777
    uid: int = 0
    gid: int = 0
    size: int = 0  #: bytes of a file
    sha256: str = ""  #: hex, of a file
    link: str = ""  #: target of a symbolic link; of a device "c 1:3" or "b 8:0"


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Everything in an artifact. Paths are absolute, the root is "/"; names that are no UTF-8 have surrogates."""

    name: str  #: as the person named it
    form: Form
    entries: Mapping[str, Entry]
    owners: bool = True  #: False: the artifact has flattened owners, so they say nothing
    settings: Mapping[str, str] | None = None  #: of the configuration ("environment PATH"); None: it has none


class Difference(msgspec.Struct, frozen=True):
    """One aspect in which two trees differ. `first` and `second` say for people what each has, empty for nothing."""

    path: str  #: or the name of the setting
    aspect: Aspect
    first: str = ""
    second: str = ""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What may differ between artifacts of one lock, and why."""

    reason: str
    #: paths: `*` any characters but a slash, a final `/**` everything below (not the folder itself); or settings
    patterns: tuple[str, ...]
    aspects: tuple[Aspect, ...]
    same: Sameness = "any"  #: how contents are compared all the same; concerns the aspect `content` alone
    forms: tuple[
        Form, ...
    ] = ()  #: one of the two is such an artifact (or a folder, a squashfs); empty: whatever they are


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result: what differs and should not, and what differs and may."""

    first: str
    second: str
    entries: tuple[int, int]  #: how many paths each has
    compared: tuple[str, ...]  #: what beside paths, kinds, modes, contents and links: "owners", "settings"
    unexpected: tuple[Difference, ...]
    allowed: tuple[tuple[Allowance, tuple[Difference, ...]], ...]  #: those that occurred, in the list's order
