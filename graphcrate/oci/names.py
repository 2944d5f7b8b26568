"""The rules for names in one layer. A layer that keeps them unpacks alike everywhere, and never outside its root."""

import tarfile
from typing import NamedTuple

from graphcrate.model.errors import LayoutError
from graphcrate.oci import spec


def entry_path(name: str) -> str:
    """The path of a tar entry relative to the root (empty for the root itself). Raises LayoutError if it leaves it."""
    if name.startswith("/"):
        raise LayoutError(f"the entry {name!r} has an absolute name")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in name:
        raise LayoutError(f"the entry {name!r} leaves the root")
    return "/".join(parts)


class Whiteout(NamedTuple):
    """What an entry takes away from the layers below: a path, or (`emptied`) what lies in the folder `path`."""

    path: str
    emptied: bool


def whiteout(path: str) -> Whiteout | None:
    """What the entry at this path takes away; None where it is no whiteout. Its path is empty for the root.

    aufs's own files (`.wh..wh.…`) mean nothing elsewhere: they take away nothing. Raises LayoutError for a whiteout
    of nothing that can be named.
    """
    parent, slash, name = path.rpartition("/")
    if not is_whiteout(path) or name == spec.OPAQUE:
        return Whiteout(parent, emptied=True) if name == spec.OPAQUE else None
    if name.startswith(spec.WHITEOUT * 2):
        return None
    removed = name.removeprefix(spec.WHITEOUT)
    if removed in ("", ".", ".."):
        raise LayoutError(f"the whiteout {path!r} removes nothing that can be named")
    return Whiteout(f"{parent}{slash}{removed}", emptied=False)


def is_whiteout(path: str) -> bool:
    """Whether the entry is no file of the layer, but says something about those below."""
    return path.rpartition("/")[2].startswith(spec.WHITEOUT)


class Names:
    """The names of one layer, as they come: each once, none below a file or a link."""

    def __init__(self) -> None:
        self.files: set[str] = set()  #: everything but folders and whiteouts
        self.whiteouts: set[str] = set()
        self.folders: set[str] = set()  #: that have an entry
        self.implied: set[str] = set()  #: that are above an entry (and may have one themselves)
        self.links_below: dict[str, str] = {}  #: hard links to files of layers below: path → target

    def add(self, member: tarfile.TarInfo) -> str:
        """Take the next entry and return its path. Raises LayoutError where it breaks a rule."""
        path = entry_path(member.name)
        if path in self.files or path in self.folders or path in self.whiteouts:
            raise LayoutError(f"{path or 'the root'} is in it twice")
        parent = path.rpartition("/")[0]
        while parent and parent not in self.implied:
            if parent in self.files or parent in self.whiteouts:
                raise LayoutError(f"{path} is below {parent}, which is not a folder")
            self.implied.add(parent)
            parent = parent.rpartition("/")[0]
        if member.isdir():
            self.folders.add(path)
            return path
        if not path or path in self.implied:
            raise LayoutError(f"{path or 'the root'} is a folder and no folder")
        if is_whiteout(path):
            self.whiteouts.add(path)
            return path
        self.files.add(path)
        if member.islnk():
            # Some writers give link targets a leading slash; they mean the image's root.
            target = entry_path(member.linkname.lstrip("/"))
            target = self.links_below.get(target, target)
            if target not in self.files or target == path:
                self.links_below[path] = target
        return path
