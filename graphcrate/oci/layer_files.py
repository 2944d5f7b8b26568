"""The files of a layer in a folder, written while the layer is, so that they need not be inflated once more.

What is compiled is compiled against them, the audit reads them, and the image's tests run in them. They are of this run
alone, in its temporary folder: the next one unpacks the layer from its blob.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.trees import remove_tree

_FOLDER = "layers"


class LayerFiles:
    """Writes entries below the new folder `root` as `artifacts.formats.rootfs` would unpack them; `mtime` everywhere.

    A copy for `ocilayout.layer.LayerWriter`, which has checked paths.
    """

    def __init__(self, root: Path, mtime: int) -> None:
        root.mkdir(0o755)
        self.root = root
        self._time = (mtime * 1_000_000_000, mtime * 1_000_000_000)
        self._folders: list[tuple[Path, int]] = []

    def folder(self, path: str, mode: int) -> None:
        """Make a folder. Its mode is set at the end: it may be one that nothing can be written below."""
        folder = self.root / path
        folder.mkdir(0o700)
        self._folders.append((folder, mode))

    def symlink(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        link = self.root / path
        link.symlink_to(target)
        os.utime(link, ns=self._time, follow_symlinks=False)

    @contextlib.contextmanager
    def file(self, path: str, mode: int, size: int) -> Iterator[Callable[[bytes], object]]:
        """Make a file; give what takes its content, piece by piece."""
        with (self.root / path).open("xb") as file:
            yield file.write
            file.flush()  # what is written later would change the time
            os.fchmod(file.fileno(), mode)
            os.utime(file.fileno(), ns=self._time)

    def finish(self) -> None:
        """Set modes and times of folders, now that all is in them."""
        for folder, mode in reversed(self._folders):
            folder.chmod(mode)
            os.utime(folder, ns=self._time)


def place(cache: Cache, digest: str) -> Path:
    """The folder of the files of the layer with this digest, if this run wrote that layer itself."""
    return cache.own / _FOLDER / digest.removeprefix("sha256:")


def drop(cache: Cache) -> None:
    """Remove the files of all layers. Those of an image that is unpacked have other names there, and stay."""
    remove_tree(cache.own / _FOLDER)
