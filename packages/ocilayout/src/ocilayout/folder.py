"""An image of a folder: one layer with its files, the documents, and the layout around them."""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from ocilayout import layout, spec
from ocilayout.errors import WritingError
from ocilayout.image import Documents, documents
from ocilayout.layer import Layer, LayerWriter

_CHUNK = 1 << 20


def make(
    folder: Path,
    out: Path,
    tag: str,
    *,
    run: spec.RunConfig,
    created: int,
    architecture: str,
    note: Callable[[str], None] = lambda _: None,
) -> Documents:
    """Write a layout of one image with the files of `folder` to `out`, which must not be there; whole or not at all.

    Owners are root, times are `created`, hard links become files; what is no file, folder or link is left out, and
    `note` gets a line for it. Raises WritingError, OSError.
    """
    if out.exists() or out.is_symlink():
        raise WritingError(f"{out} is there already", next_step="remove it, or name another folder")
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        partial, blob = Path(scratch, "layout"), Path(scratch, "layer")
        partial.mkdir()
        with blob.open("wb") as stream:
            layer = _written(LayerWriter(stream, created), folder, note)
        image = documents([layer], [f"ocilayout: {folder.name}"], run, created, architecture)
        layout.write(partial, image, {layer.digest: blob}, tag, architecture)
        partial.rename(out)
    return image


def _written(writer: LayerWriter, folder: Path, note: Callable[[str], None]) -> Layer:
    for path, entry in _entries(folder, ""):
        status = entry.stat(follow_symlinks=False)
        mode = stat.S_IMODE(status.st_mode)
        if entry.is_symlink():
            writer.symlink(path, str(Path(entry.path).readlink()))
        elif entry.is_dir(follow_symlinks=False):
            writer.folder(path, mode)
        elif stat.S_ISREG(status.st_mode):
            with Path(entry.path).open("rb") as file:
                writer.stream(path, status.st_size, _chunks(file), mode)
        else:
            note(f"{path} is not a file, folder or link, and is left out")
    return writer.finish()


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _entries(folder: Path, below: str) -> Iterator[tuple[str, "os.DirEntry[str]"]]:
    """Yield what is below a folder by names in order, each folder before what it holds, however deep."""
    waiting = [(str(folder), below)]
    while waiting:
        path, name = waiting.pop()
        with os.scandir(path) as entered:
            entries = sorted(entered, key=lambda entry: entry.name)
        for entry in entries:
            yield f"{name}{entry.name}", entry
        folders = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
        waiting += [(entry.path, f"{name}{entry.name}/") for entry in reversed(folders)]
