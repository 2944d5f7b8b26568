"""Select the results of the stack's image that may be shown for an image on top of it.

A result is of the layers that it ran on. It may be shown for an image that has all of these, untouched, in the same
environment; publishing goes by what ran in the image itself (`graphcrate.publish.policy`).
"""

import re
import tarfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from graphcrate.compat.facts import start_up
from graphcrate.model.plan import VENV
from graphcrate.oci.blob import open_blob
from graphcrate.oci.layout import Layout
from layertar.entries import read_entries
from ocilayout import spec
from ocilayout.spec import LayerBlob

if TYPE_CHECKING:
    from layertar.stream import TarStream

#: The interpreter, and what tells it where it is: wheels may bring programs, not these.
_INTERPRETER = re.compile(r"(bin/(python|pip)[0-9.]*|pyvenv\.cfg|lib64|lib)")
#: The loader may find these before those of a wheel, where that was linked so (torch with MKL).
_LIBRARY = re.compile(r"lib/[^/]+\.so(\.\d+)*")


def objection(below: Layout, image: Layout) -> str:
    """Say why the results of `below` do not hold for `image`, as a clause; empty where they do.

    What the layers above may do is add files of packages that Python reads when
    they are imported: nothing that is there already is replaced, removed or started in another way. Raises LayoutError.
    """
    count = len(below.layers)
    if [layer.digest for layer in image.layers[:count]] != [layer.digest for layer in below.layers]:
        return "it does not have the layers that they ran on"
    if _started(image) != _started(below):
        return "its environment is another"
    concerned: dict[str, bytes] = {}
    for blob in image.layer_blobs[count:]:
        for path, content in _read(blob):
            if why := _harm(f"/{path}"):
                return why
            if start_up.concerns(f"/{path}"):
                concerned[f"/{path}"] = content
    return next((start.sentence for start in start_up.found(concerned)), "")


def _started(image: Layout) -> spec.RunConfig:
    return msgspec.structs.replace(image.config.run, labels=None)


def _read(blob: LayerBlob) -> Iterator[tuple[str, bytes]]:
    """Give the paths that a layer has but for folders, with the content of what may run by itself."""

    def keep(path: str, member: tarfile.TarInfo) -> bytes:
        is_asked = member.isreg() and start_up.concerns(f"/{path}")
        return b"".join(stream.chunks(member.size)) if is_asked else b""

    stream: TarStream
    with open_blob(blob) as stream:
        entries = read_entries(stream, keep)
    for path in (*entries.removed, *entries.emptied):
        yield f"{path}/{spec.WHITEOUT}", b""
    for path in entries.links_below:
        yield path, b""
    for path, content in entries.by_path.items():
        if path not in entries.folders:
            yield path, content


def _harm(path: str) -> str:
    """Say how a file of a layer may change what is below it; empty where it cannot."""
    if path.rpartition("/")[2].startswith(spec.WHITEOUT):
        return f"{path.rpartition('/')[0]} is removed from it"
    if not path.startswith(f"{VENV}/"):
        return f"{path} is added to it"
    inside = path.removeprefix(f"{VENV}/")
    if _INTERPRETER.fullmatch(inside):
        return f"{path} is replaced"
    return f"the loader may take {path} for another's" if _LIBRARY.fullmatch(inside) else ""
