"""An image as its difference to another one: what an overlay over the other shows as the whole.

As the kernel's overlayfs has it: a path that is gone is a character device 0/0 (a whiteout); what is changed is there
whole, in folders that have the image's rights.
"""

import tarfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from graphcrate.oci.entries import parents
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


def difference(base: Side, image: Side) -> dict[str, Inode]:
    """Return the entries that `image` has over `base`: new and changed ones, whiteouts, and the folders above them."""
    changed = {path: inode for path, inode in image.files.items() if base.state(path) != image.state(path)}
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
