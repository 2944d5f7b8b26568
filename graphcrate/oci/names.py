"""The rules for names in one layer. A layer that keeps them unpacks alike everywhere, and never outside its root."""

import tarfile

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


class Names:
    """The names of one layer, as they come: each once, none below a file or a link."""

    def __init__(self) -> None:
        self.files: set[str] = set()  #: everything but folders and whiteouts
        self.whiteouts: set[str] = set()
        self.removed: set[str] = set()  #: what whiteouts take away from the layers below
        self.emptied: set[str] = set()  #: folders that have nothing of the layers below
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
        if path.rpartition("/")[2].startswith(spec.WHITEOUT):
            self._add_whiteout(path)
            return path
        self.files.add(path)
        if member.islnk():
            # Some writers give link targets a leading slash; they mean the image's root.
            target = entry_path(member.linkname.lstrip("/"))
            target = self.links_below.get(target, target)
            if target not in self.files or target == path:
                self.links_below[path] = target
        return path

    def _add_whiteout(self, path: str) -> None:
        self.whiteouts.add(path)
        parent, slash, name = path.rpartition("/")
        removed = name.removeprefix(spec.WHITEOUT)
        if name == spec.OPAQUE:
            self.emptied.add(parent)
        elif removed in ("", ".", ".."):
            raise LayoutError(f"the whiteout {path!r} removes nothing that can be named")
        elif not removed.startswith(spec.WHITEOUT):  # aufs's own files (`.wh..wh.…`) mean nothing elsewhere
            self.removed.add(f"{parent}{slash}{removed}")
