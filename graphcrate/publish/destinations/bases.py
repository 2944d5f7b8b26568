"""A shared folder's deltas and the SIFs that they go over: listed, and SIFs that no delta needs removed.

`publish --as delta` puts such a SIF into `bases/` of the folder, once. What else is in the folder was published whole,
and is never removed.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from graphcrate.artifacts import origin
from graphcrate.host import settings
from graphcrate.host.disk import os_errors
from graphcrate.host.disk.trees import remove_tree

#: seconds for which a new SIF stays though no delta goes over it: one may be on its way
YOUNG = 86_400.0


class SharedBase(msgspec.Struct, frozen=True, kw_only=True):
    """A SIF that deltas go over. `path` empty: it is missing, and `deltas` start nowhere."""

    name: str  #: of the image, with its tag
    digest: str  #: of its layout
    path: str = ""
    bytes: int = 0
    deltas: tuple[str, ...] = ()  #: names of files
    prunable: bool = False


def find(folder: Path, digest: str) -> Path | None:
    """Return the SIF of a shared folder that was made of this layout."""
    files = (*sorted((folder / origin.BASES_FOLDER).glob("*.sif")), *sorted(folder.glob("*.sif")))
    return next((file for file in files if not file.is_symlink() and origin.is_of(file, digest)), None)


def listed(folder: Path) -> tuple[SharedBase, ...]:
    """List what deltas go over, and what is in `bases/`. Raises LayoutError, HostError for a delta that is not read."""
    over: dict[origin.Origin, list[str]] = {}
    with os_errors.explaining(folder):
        for path in sorted(folder.glob("*.sqsh")):
            if path.is_symlink():
                continue
            path.open("rb").close()  # one that may not be read would count for nothing
            if path.name.endswith(".delta.sqsh") or origin.is_delta(path):
                over.setdefault(origin.over(path), []).append(path.name)
        for path in sorted((folder / origin.BASES_FOLDER).glob("*.sif")):
            if not path.is_symlink() and (stated := origin.of_sif(path)):
                over.setdefault(stated, [])
        return tuple(_base(folder, name, deltas) for name, deltas in sorted(over.items()))


def _base(folder: Path, name: origin.Origin, deltas: Sequence[str]) -> SharedBase:
    path = find(folder, name.digest)
    if path is None:
        return SharedBase(name=name.name, digest=name.digest, deltas=tuple(deltas))
    status = path.stat()
    unneeded = not deltas and path.parent.name == origin.BASES_FOLDER
    return SharedBase(
        name=name.name,
        digest=name.digest,
        path=str(path),
        bytes=status.st_size,
        deltas=tuple(deltas),
        prunable=unneeded and settings.now() - status.st_mtime > YOUNG,
    )


def remove(doomed: Sequence[SharedBase]) -> None:
    """Remove SIFs with what was published of each, and the links to them. Raises HostError."""
    for base in doomed:
        path = Path(base.path)
        with os_errors.explaining(path.parent):
            links = [
                file for file in path.parent.glob("*.sif") if file.is_symlink() and file.resolve() == path.resolve()
            ]
            for each in (*links, path.with_name(f"{path.name}.sha256"), path):
                each.unlink(missing_ok=True)
            remove_tree(path.with_suffix(".proofs"))
