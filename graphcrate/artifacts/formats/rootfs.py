"""Layers to a root file system, with neither an engine nor root.

The files of each layer are unpacked side by side, by number; those that the image has in the end are then renamed to
their paths. No name of a layer touches the disk before `layertar` has judged all of them, so nothing is followed.

An image may be anybody's, and everybody on this machine can reach the tree: what would give its users more than they
have is left out (docs/decisions/conversion.md). `Withheld` says what.
"""

# System calls on strings: with tens of thousands of files, Path objects cost more than the calls.
# ruff: noqa: PTH101, PTH102, PTH104, PTH123, PTH211

import contextlib
import errno
import functools
import itertools
import os
import shutil
import stat
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from graphcrate.artifacts.formats.merged import IMPLIED, inode_of
from graphcrate.host.disk import trees
from graphcrate.host.disk.atomic import appearing
from graphcrate.host.parallel import parallel
from graphcrate.model.errors import HostError, LayoutError
from graphcrate.model.words import printable
from graphcrate.oci.blob import open_blob
from layertar.entries import HARMLESS_DEVICES, Entries, device_of, overlaid, read_entries
from layertar.stream import TarStream, content_of
from ocilayout.spec import LayerBlob
from sifsquash.values import XATTR, Inode

_ROOT = "root"
#: A root without the capability, or in a user namespace that lacks the id, does without.
_NOT_PERMITTED = (errno.EPERM, errno.EINVAL, errno.ENOTSUP)
_NO_LINK = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_SET_ID = stat.S_ISUID | stat.S_ISGID
#: Others are rights (security.capability), or orders to the file system above (trusted.overlay, user.overlay).
_ATTRIBUTES, _OVERLAY = "user.", "user.overlay."
_Permitted = Callable[[], contextlib.AbstractContextManager[None]] | None  #: None: not root
_BYTES = ("utf-8", "surrogateescape")  #: how `tarfile` has the values of extended attributes as text
_LINKED = Inode(kind=tarfile.REGTYPE, mode=0)  #: what a hard link shares has attributes of its own


@dataclass(frozen=True)
class Withheld:
    """Paths that an image has and a tree leaves out."""

    devices: list[str] = field(default_factory=list)  #: "/dev/sda (b 8:0)"
    set_id: list[str] = field(default_factory=list)  #: files whose program would run as its owner or group
    attributes: list[str] = field(default_factory=list)  #: files with rights of their own

    def lines(self) -> list[str]:
        """For people."""
        known = (
            (self.devices, "devices", "they are this machine's hardware"),
            (self.set_id, "set-user-id and set-group-id bits", "whoever can reach the folder could become their owner"),
            (self.attributes, "capabilities and the like", "they are rights on this machine"),
        )
        return [f"left out: {what} ({_some(paths)}): {why}" for paths, what, why in known if paths]


def _some(paths: list[str]) -> str:
    paths = sorted(map(printable, paths))
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")


@dataclass(slots=True, eq=False)
class _Node:
    """An inode and where it is on the disk: nowhere yet (a folder, a device that could not be made), or its path."""

    inode: Inode
    mtime: int  #: nanoseconds of Unix time
    on_disk: str = ""
    stays: bool = False  #: another name is a hard link to `on_disk`


def unpack(
    layers: Sequence[LayerBlob],
    destination: Path,
    *,
    advance: Callable[[int], None] | None = None,
    below: Path | None = None,
    unpacked: Mapping[Path, Path] | None = None,
    faithful: bool = False,
) -> Withheld:
    """Unpack layers, lowest first, into the folder `destination`, which appears whole or not at all; what was withheld.

    Does nothing where it is there already; a second process waits for the first. `advance` counts compressed bytes,
    from any thread. `below`: the tree of the layers below these, unpacked on the same disk by the same user; its files
    are shared by hard links, as are those of layers that `oci.layer_files` has (`unpacked`: blob → folder). Owners,
    devices and extended attributes are set only for root; times always.
    Raises LayoutError for a layer that is broken or would leave the folder; where the tree has to be `faithful`,
    HostError for an owner or a device that the machine does not permit.
    """
    withheld = Withheld()
    with appearing(destination, _ROOT) as partial:
        if partial is None:
            return withheld
        permitted = functools.partial(_permitted, faithful=faithful) if faithful or os.geteuid() == 0 else None
        staged = parallel(
            lambda number, advancing: (
                _unpacked(unpacked[path], path, advancing)
                if unpacked and (path := layers[number].path) in unpacked
                else _stage(layers[number], partial / str(number), advancing, permitted, withheld)
            ),
            range(len(layers)),
            advance=advance,
            size=lambda number: layers[number].path.stat().st_size,
        )
        # A fixed time, so that the tree depends on the layers alone.
        merged = overlaid([*([_tree(below)] if below else ()), *staged], _Node(IMPLIED, 0), error=LayoutError)
        _build(merged, str(partial / _ROOT), permitted)
    return withheld


def _stage(
    blob: LayerBlob, folder: Path, advance: Callable[[int], None], permitted: _Permitted, withheld: Withheld
) -> Entries[_Node]:
    """Unpack the files of a layer into the new `folder`."""
    folder.mkdir()
    numbers = itertools.count()

    def keep(path: str, header: tarfile.TarInfo) -> _Node:
        inode = _harmless(path, inode_of(path, header), withheld)
        node = _Node(inode, int(header.mtime * 1_000_000_000))
        if not inode.is_folder:
            on_disk = f"{folder}/{next(numbers)}"
            if _make(on_disk, inode, header, stream, permitted):
                node.on_disk = on_disk
                _apply(on_disk, node, permitted)
        return node

    try:
        with open_blob(blob, advance=advance) as stream:
            return read_entries(stream, keep)
    except LayoutError as error:
        raise LayoutError(
            f"layer {blob.path.name}: {error.what}", cause=error.cause, next_step=error.next_step
        ) from error


def _harmless(path: str, inode: Inode, withheld: Withheld) -> Inode:
    """The inode without what it would give to people of this machine."""
    device = device_of(inode.kind, inode.device)
    if device and device not in HARMLESS_DEVICES:
        withheld.devices.append(f"/{path} ({device})")
    mode, xattrs = inode.mode, inode.xattrs
    if mode & _SET_ID and not inode.is_folder:  # of a folder it gives new files its group, and no rights
        withheld.set_id.append(f"/{path}")
        mode &= ~_SET_ID
    if xattrs:
        names = [(name.removeprefix(XATTR), (name, value)) for name, value in xattrs]
        xattrs = tuple(xattr for name, xattr in names if name.startswith(_ATTRIBUTES) and not name.startswith(_OVERLAY))
        withheld.attributes.extend([f"/{path}"] if len(xattrs) < len(names) else [])
    return msgspec.structs.replace(inode, mode=mode, xattrs=xattrs)


def _make(on_disk: str, inode: Inode, header: tarfile.TarInfo, stream: TarStream, permitted: _Permitted) -> bool:
    """Make a file, link, pipe or device; False for a device that is not made, or cannot be."""
    if inode.is_file:
        with open(on_disk, "xb") as file:
            file.writelines(content_of(header, stream))
    elif inode.kind == tarfile.SYMTYPE:
        os.symlink(inode.link, on_disk)
    elif inode.kind == tarfile.FIFOTYPE:
        os.mkfifo(on_disk)
    elif permitted and device_of(inode.kind, inode.device) in HARMLESS_DEVICES:
        with permitted():
            os.mknod(on_disk, stat.S_IFCHR | 0o600, os.makedev(*inode.device))
        return os.path.lexists(on_disk)
    else:
        return False
    return True


def _tree(root: Path) -> Entries[_Node]:
    """An unpacked tree as if it were a layer. Its files are linked, and never written."""
    tree = Entries[_Node]()
    for at, folders, names in trees.walk(root):
        for on_disk in (at, *(f"{at}/{name}" for name in (*folders, *names))):
            path, status = on_disk.removeprefix(str(root)).lstrip("/"), os.lstat(on_disk)
            if not stat.S_ISDIR(status.st_mode):
                tree.by_path[path] = _Node(_LINKED, 0, on_disk, stays=True)
            elif path not in tree.folders:
                xattrs = tuple(
                    (f"{XATTR}{key}", os.getxattr(on_disk, key).decode(*_BYTES)) for key in os.listxattr(on_disk)
                )
                mode, uid, gid = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
                inode = Inode(kind=tarfile.DIRTYPE, mode=mode, uid=uid, gid=gid, xattrs=xattrs)
                tree.by_path[path] = _Node(inode, status.st_mtime_ns)
                tree.folders.add(path)
    return tree


def _unpacked(folder: Path, blob: Path, advance: Callable[[int], None]) -> Entries[_Node]:
    """A layer that `oci.layer_files` has. It has no entry for the root."""
    layer = _tree(folder)
    layer.folders.remove("")
    del layer.by_path[""]
    advance(blob.stat().st_size)
    return layer


def _build(merged: Mapping[str, _Node], root: str, permitted: _Permitted) -> None:
    folders: list[tuple[str, _Node]] = []
    for path in sorted(merged):
        node, on_disk = merged[path], f"{root}/{path}".rstrip("/")
        if node.inode.is_folder:
            os.mkdir(on_disk)
            folders.append((on_disk, node))
        elif node.stays:
            _share(node.on_disk, on_disk)
        elif node.on_disk:
            os.rename(node.on_disk, on_disk)
            node.on_disk, node.stays = on_disk, True
    for on_disk, node in reversed(folders):  # the deepest first: a parent may close itself, and gets its time at last
        _apply(on_disk, node, permitted)


def _share(source: str, target: str) -> None:
    """Give a file a second name; a copy where the disk has no hard links (vfat, some FUSE), or no more of this one."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copy2(source, target, follow_symlinks=False)


def _apply(on_disk: str, node: _Node, permitted: _Permitted) -> None:
    """Set owner, extended attributes, mode and time. Of extended attributes those that the kernel takes."""
    inode = node.inode
    if permitted:
        with permitted():
            os.chown(on_disk, inode.uid, inode.gid, follow_symlinks=False)
        for name, value in inode.xattrs:
            with _permitted(faithful=False):
                os.setxattr(on_disk, name.removeprefix(XATTR), value.encode(*_BYTES), follow_symlinks=False)
    if inode.kind != tarfile.SYMTYPE:
        os.chmod(on_disk, inode.mode)  # after chown, which clears the set-user-id bit
    try:
        os.utime(on_disk, ns=(node.mtime, node.mtime), follow_symlinks=False)
    except OverflowError as error:
        raise LayoutError(f"a time of {node.mtime} ns is out of range") from error


@contextlib.contextmanager
def _permitted(*, faithful: bool) -> Iterator[None]:
    """Do without what the machine does not permit, unless the tree has to be faithful."""
    try:
        yield
    except OSError as error:
        if faithful:
            raise HostError(
                f"the image cannot be unpacked faithfully here: {error}",
                cause="Root lacks a capability or an id (in a container or a user namespace), or the disk is a "
                "network's that keeps no owners.",
                next_step="unpack on a local disk as the machine's root; --to sif and --to sqsh need neither",
            ) from error
        if error.errno not in _NOT_PERMITTED:
            raise
