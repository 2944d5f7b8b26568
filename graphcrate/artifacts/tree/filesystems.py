"""Read a root file system as it is, in a folder, a SIF or a squashfs: no engine, no mount, nothing unpacked.

Nothing is followed out of it: links are entries like any other.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from graphcrate.artifacts import origin
from graphcrate.artifacts.formats.translated import layout_errors
from graphcrate.artifacts.locate import kind_of
from graphcrate.artifacts.tree.reader import OpenedTree, Tools, owners_known, with_hashes
from graphcrate.compat.facts import facts
from graphcrate.host.disk import trees
from graphcrate.model.errors import HostError, LayoutError
from graphcrate.model.tree import Entry, Form, Kind
from layertar.stream import CHUNK
from sifsquash import sif
from sifsquash.squashfs import Squashfs
from sifsquash.values import Content

_WHITEOUT = "c 0:0"  #: the device that hides a path of the image below
_KINDS: dict[int, Kind] = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "symlink",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
}


def read_folder(name: str, root: Path, tools: Tools) -> OpenedTree:
    """Read a folder. Raises HostError where something in it may not be read."""
    try:
        unhashed = dict(_walk(str(root)))
        files = [path for path, entry in unhashed.items() if entry.kind == "file"]
        entries = with_hashes(name, unhashed, files, lambda path: _chunks(f"{root}{path}"), tools)
    except PermissionError as error:
        raise HostError(
            f"{error.filename} may not be read",
            cause="The folder has files of other users; what they hold cannot be compared.",
            next_step="run the same command with sudo, or compare the image that the folder was made of",
        ) from error

    def read(path: str) -> bytes:
        return tools.selection.distil(path, entries[path].size, Path(f"{root}{path}"))

    return OpenedTree(name, "folder", entries, read, owners_known(entries))


def read_squashed(form: Form, name: str, files: Sequence[Path], tools: Tools) -> OpenedTree:
    """Read a SIF's primary partition, or a squashfs: enroot's `.sqsh`, or of any other maker; deltas over it.

    `files`: lowest first. Raises LayoutError.
    """
    shown: _Shown = {}
    compressions = set()
    with _errors(files):
        for number, file in enumerate(files):
            image = tools.stack.enter_context(Squashfs(file, sif.root_offset(file) if kind_of(file) == "sif" else 0))
            compressions.add(image.compression)
            upper: _Shown = {}
            for path, held, content in image.entries():
                entry = Entry(held.kind, held.mode, held.uid, held.gid, held.size, "", held.link)
                upper[path] = entry, _Place(number, content, image) if content else None
            shown = _over(shown, upper) if number else upper
    entries = {path: entry for path, (entry, _) in shown.items()}
    places = {path: place for path, (_, place) in shown.items() if place is not None}
    # In the order of the files, so that the disk and the blocks that several small files share are read once.
    ordered = sorted(places, key=lambda path: places[path].position)
    with _errors(files):
        entries = with_hashes(name, entries, ordered, lambda path: places[path].chunks(), tools)

    def read(path: str) -> bytes:
        with _errors(files):
            return tools.selection.distil(path, entries[path].size, places[path].chunks())

    return OpenedTree(name, form, entries, read, owners_known(entries), compression=max(compressions))


@contextlib.contextmanager
def _errors(files: Sequence[Path]) -> Iterator[None]:
    """Raise what is wrong with an image as a LayoutError, with its cause where its maker is known for it."""
    try:
        with layout_errors():
            yield
    except LayoutError as error:
        limit = facts.limit("apptainer-whole-sif")
        releases = [release for file in files if limit.objection(release := origin.apptainer(file))]
        if not releases:
            raise
        raise LayoutError(
            error.what,
            cause=f"Apptainer {releases[0]} wrote it. {limit.objection(releases[0])}.",
            next_step=f"apptainer --version    must say {limit.since} or later: then build or pull the file again",
        ) from error


class _Place(NamedTuple):
    """The place of a file's content: in which of several images, lowest 0."""

    number: int
    content: Content
    image: Squashfs

    @property
    def position(self) -> tuple[int, int, int]:
        return self.number, self.content.start, self.content.fragment

    def chunks(self) -> Iterator[bytes]:
        return self.image.chunks(self.content)


_Shown = dict[str, tuple[Entry, _Place | None]]


def _over(lower: _Shown, upper: _Shown) -> _Shown:
    """Return what both show together: nothing of the lower image is seen below what is no folder in the upper one."""
    hidden = {path for path, (entry, _) in upper.items() if entry.kind != "folder"}
    for path in lower:  # a folder comes before what is in it
        if path.rpartition("/")[0] in hidden:
            hidden.add(path)
    seen = {path: there for path, there in lower.items() if path not in hidden}
    return seen | {path: there for path, there in upper.items() if there[0].link != _WHITEOUT}


def _walk(root: str) -> Iterator[tuple[str, Entry]]:
    yield "/", _entry(root)
    for at, *names in trees.walk(root, failed=_raised):
        for name in itertools.chain(*names):
            path = f"{at.removeprefix(root)}/{name}"
            yield path, _entry(f"{root}{path}")


def _raised(error: OSError) -> None:
    raise error


def _entry(path: str) -> Entry:
    status = os.lstat(path)
    kind, mode, link = _KINDS[stat.S_IFMT(status.st_mode)], stat.S_IMODE(status.st_mode), ""
    if kind == "symlink":
        mode, link = 0o777, os.readlink(path)  # noqa: PTH115 (tens of thousands of them)
    elif kind == "device":
        letter = "c" if stat.S_ISCHR(status.st_mode) else "b"
        link = f"{letter} {os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return Entry(kind, mode, status.st_uid, status.st_gid, status.st_size if kind == "file" else 0, "", link)


def _chunks(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 (tens of thousands of them)
        while chunk := file.read(CHUNK):
            yield chunk
