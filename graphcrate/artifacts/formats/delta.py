"""An image as its difference to another one: what an overlay over the other shows as the whole.

As the kernel's overlayfs has it: a path that is gone is a character device 0/0 (a whiteout); what is changed is there
whole, in folders that have the image's rights.
"""

import tarfile
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from layertar.entries import parents
from sifsquash.values import Inode

WHITEOUT = Inode(kind=tarfile.CHRTYPE, mode=0)


class Side(NamedTuple):
    """The files of an image, with the digests of the layers that their blocks are in, lowest first."""

    files: Mapping[str, Inode]
    layers: Sequence[str]

    def state(self, path: str) -> tuple[Inode, str] | None:
        """Return what a path is, for comparisons between images whose layers have other numbers; None for nothing."""
        inode = self.files.get(path)
        if inode is None:
            return None
        if inode.stored is None:
            return inode, ""
        stored = msgspec.structs.replace(inode.stored, layer=0)
        return msgspec.structs.replace(inode, stored=stored), self.layers[inode.stored.layer]


def difference(
    base: Side, image: Side, is_same: Callable[[Inode, Inode], bool] = lambda _, __: False
) -> dict[str, Inode]:
    """Return the entries that `image` has over `base`: new and changed ones, whiteouts, and the folders above them.

    `is_same` tells whether a file of the base and one of the image, which differ in nothing but the layers that they
    are in, have the same content.
    """
    changed = {path: inode for path, inode in image.files.items() if base.state(path) != image.state(path)}
    moved = [path for path, inode in changed.items() if _may_be_same(base.files.get(path), inode)]
    for path in sorted(moved, key=lambda path: _place(base.files[path])):
        if is_same(base.files[path], changed[path]):
            del changed[path]
    for path in base.files:
        if path in image.files:
            continue
        above = parents(path)
        # Below what is no folder any more, or gone itself, nothing shows.
        if all((inode := image.files.get(parent)) is not None and inode.is_folder for parent in above):
            changed[path] = WHITEOUT
    for path in tuple(changed):
        for parent in parents(path):
            if parent in image.files:
                changed.setdefault(parent, image.files[parent])
    return changed


def _may_be_same(old: Inode | None, new: Inode) -> bool:
    """Return whether two files of layers differ in nothing but where their content is."""
    if old is None or old.stored is None or new.stored is None:
        return False
    return old == msgspec.structs.replace(new, stored=old.stored)


def _place(inode: Inode) -> tuple[int, int, int, int]:
    """Return the place of a file's content, so that neighbours are read one after another."""
    stored = inode.stored
    return (stored.layer, stored.fragment or 0, stored.offset, stored.start) if stored else (0, 0, 0, 0)
