"""Layers to a root file system, with neither an engine nor root.

Each layer is unpacked into a folder of its own, all of them side by side; then they are merged in order by renaming.
So whiteouts act on the layers below and on nothing else, whatever their place in the tar, and no layer can make
another write through a link of its own.
"""

# As in `artifacts.formats.stage`.
# ruff: noqa: PTH102, PTH104, PTH108, PTH114, PTH208

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from graphcrate.artifacts.formats.stage import Attributes, Stage, apply, stage_layer
from graphcrate.host.atomic import appearing
from graphcrate.host.cache import remove_tree
from graphcrate.host.parallel import parallel
from graphcrate.model.errors import LayoutError
from graphcrate.oci.spec import LayerBlob

_ROOT = "root"
#: of a folder that no layer has an entry for; a fixed time, so that the tree depends on the layers alone
_IMPLIED = Attributes(mode=0o755, uid=0, gid=0, mtime=0)


def unpack(
    layers: Sequence[LayerBlob],
    destination: Path,
    *,
    advance: Callable[[int], None] | None = None,
    below: Path | None = None,
) -> None:
    """Unpack layers, lowest first, into the folder `destination`, which appears whole or not at all.

    Does nothing where it is there already; a second process waits for the first. `advance` counts compressed bytes,
    from any thread. `below`: the tree of the layers below these, unpacked on the same disk by the same user; its files
    are shared by hard links. Owners, devices and extended attributes are set only for root; modes and times always.
    Raises LayoutError for a layer that is broken or would leave the folder.
    """
    with appearing(destination, _ROOT) as partial:
        if partial is not None:
            _unpack(layers, partial, advance, below)


def _unpack(
    layers: Sequence[LayerBlob], partial: Path, advance: Callable[[int], None] | None, below: Path | None
) -> None:
    privileged = os.geteuid() == 0
    stages = parallel(
        lambda number, advancing: stage_layer(layers[number], partial / str(number), advancing, privileged),
        range(len(layers)),
        advance=advance,
        size=lambda number: layers[number].path.stat().st_size,
    )
    tree = _Tree(partial / _ROOT, privileged)
    if below is not None:
        tree.share(below)
    for stage in stages:
        tree.merge(stage)
    tree.finish()


class _Tree:
    """The root file system while layers are merged into it."""

    def __init__(self, root: Path, privileged: bool) -> None:
        self._root, self._privileged = str(root), privileged
        self._folders: dict[str, Attributes] = {}
        root.mkdir()
        root.chmod(0o755)

    def share(self, other: Path) -> None:
        """Begin with the folders and files of another tree. Files are links; merging replaces, and never writes."""
        for at, folders, names in os.walk(other):
            inside = at.removeprefix(str(other)).lstrip("/")
            place = f"{self._root}/{inside}".rstrip("/")
            for name in list(folders):
                if os.path.islink(f"{at}/{name}"):
                    folders.remove(name)
                    names.append(name)
            for name in names:
                os.link(f"{at}/{name}", f"{place}/{name}", follow_symlinks=False)
            for name in folders:
                path = f"{inside}/{name}".lstrip("/")
                os.mkdir(f"{self._root}/{path}")
                found = os.lstat(f"{at}/{name}")
                xattrs = tuple((key, os.getxattr(f"{at}/{name}", key)) for key in os.listxattr(f"{at}/{name}"))
                mode = stat.S_IMODE(found.st_mode)
                self._folders[path] = Attributes(mode, found.st_uid, found.st_gid, found.st_mtime_ns, xattrs)

    def merge(self, stage: Stage) -> None:
        """Put a layer over what is there."""
        for path in stage.emptied:
            if self._is_folder(path):
                for name in os.listdir(f"{self._root}/{path}"):
                    self._remove(f"{path}/{name}".lstrip("/"))
        for path in stage.removed:
            if self._is_folder(path.rpartition("/")[0]) and os.path.lexists(f"{self._root}/{path}"):
                self._remove(path)
        self._merge_folder("", stage)
        for path in stage.implied:
            self._folders.setdefault(path, _IMPLIED)
        self._folders.update(stage.folders)
        for path, target in stage.links:
            self._link(path, target)
        remove_tree(Path(stage.root))

    def finish(self) -> None:
        """Give folders their modes and times, the deepest first: a parent may close itself."""
        for path in sorted(self._folders, reverse=True):
            apply(f"{self._root}/{path}".rstrip("/"), self._folders[path], self._privileged)

    def _merge_folder(self, folder: str, stage: Stage) -> None:
        with os.scandir(f"{stage.root}/{folder}") as entries:
            for entry in list(entries):
                path = f"{folder}/{entry.name}".lstrip("/")
                place = f"{self._root}/{path}"
                try:
                    standing = os.lstat(place).st_mode
                except FileNotFoundError:
                    os.rename(entry.path, place)
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if stat.S_ISDIR(standing):
                        self._merge_folder(path, stage)
                        continue
                    if path not in stage.folders:
                        raise LayoutError(
                            f"a layer has files below {path}, which is not a folder in the layers below it",
                            cause="Engines disagree on what that means: some follow a link, others replace it.",
                        )
                self._remove(path)
                os.rename(entry.path, place)

    def _link(self, path: str, target: str) -> None:
        """A hard link to a file of a layer below."""
        parent = target.rpartition("/")[0]
        source, place = f"{self._root}/{target}", f"{self._root}/{path}"
        if not self._is_folder(parent) or not os.path.lexists(source) or stat.S_ISDIR(os.lstat(source).st_mode):
            raise LayoutError(f"{path} is a hard link to {target}, which is not a file of this layer or those below")
        if os.path.lexists(place):
            if os.path.samestat(os.lstat(place), os.lstat(source)):
                return
            self._remove(path)
        os.link(source, place, follow_symlinks=False)

    def _is_folder(self, path: str) -> bool:
        """Whether it is a folder and no part of its path a link, which could lead outside."""
        place = self._root
        for part in path.split("/") if path else ():
            place = f"{place}/{part}"
            try:
                mode = os.lstat(place).st_mode
            except FileNotFoundError:
                return False
            if not stat.S_ISDIR(mode):
                return False
        return True

    def _remove(self, path: str) -> None:
        place = f"{self._root}/{path}"
        if not stat.S_ISDIR(os.lstat(place).st_mode):
            os.unlink(place)
            return
        remove_tree(Path(place))
        for below in [folder for folder in self._folders if folder == path or folder.startswith(f"{path}/")]:
            del self._folders[below]
