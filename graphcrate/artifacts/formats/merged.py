"""An image's files: what its layers come to, each once, and where the content of each is."""

import tarfile
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from graphcrate.model.errors import LayoutError
from graphcrate.oci.layout import REBUILD
from layertar.entries import parents
from sifsquash.values import LATEST, XATTR, Inode

_FOLDER, _FILE, _LINK = tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE


#: A folder that no layer has an entry for, as `artifacts.formats.rootfs` makes it.
IMPLIED = Inode(kind=_FOLDER, mode=0o755)


class Addition(NamedTuple):
    """An entry that a runtime needs and the image lacks. Its owner is root."""

    path: str
    mode: int = 0o755
    content: bytes | None = None  #: of a file
    link: str = ""  #: target of a symbolic link; with neither it is a folder, and one that is there stays

    @property
    def kind(self) -> bytes:
        """Type flag of the tar format."""
        if self.content is not None:
            return _FILE
        return _LINK if self.link else _FOLDER


def check_digest(what: str, digest: str, seen: str) -> None:
    """Raises LayoutError where the bytes of a layout's blob have another digest."""
    if seen != digest:
        raise LayoutError(
            f"{what} {digest} is damaged: its bytes hash to {seen}",
            cause="The file was changed after it was written.",
            next_step=REBUILD,
        )


def with_additions(image: Mapping[str, Inode], additions: Iterable[Addition], mtime: int) -> dict[str, Inode]:
    """The image with these entries. Raises LayoutError where one of its files stands where a folder has to be."""
    paths = dict(image)
    for addition in additions:
        standing = paths.get(addition.path)
        if standing is not None and addition.kind == _FOLDER:
            continue
        if standing is not None and standing.is_folder:
            raise LayoutError(f"/{addition.path} is a folder in the image, and a runtime needs a file there")
        for parent in parents(addition.path):
            above = paths.setdefault(parent, msgspec.structs.replace(IMPLIED, mtime=mtime))
            if not above.is_folder:
                raise LayoutError(f"/{parent} is not a folder in the image, and a runtime needs /{addition.path} in it")
        content = addition.content or b""
        paths[addition.path] = Inode(
            kind=addition.kind,
            mode=addition.mode,
            mtime=mtime,
            size=len(content),
            link=addition.link,
            content=content,
        )
    return paths


def inode_of(path: str, header: tarfile.TarInfo) -> Inode:
    """The inode that a tar's entry describes. Raises LayoutError for a type or a time that no squashfs has."""
    regular = header.isreg()  # sparse files too
    if not (regular or header.isdir() or header.issym() or header.isfifo() or header.isdev()):
        raise LayoutError(f"{path} is of an unknown type {header.type!r}")
    try:
        mtime = min(max(int(header.mtime), 0), LATEST)
    except (ValueError, OverflowError) as error:
        raise LayoutError(f"{path} has no valid time") from error
    xattrs = tuple((name, value) for name, value in sorted(header.pax_headers.items()) if name.startswith(XATTR))
    return Inode(
        kind=_FILE if regular else header.type,
        mode=header.mode & 0o7777,
        uid=header.uid,
        gid=header.gid,
        mtime=mtime,
        size=header.size if regular else 0,
        link=header.linkname if header.issym() else "",
        device=(header.devmajor, header.devminor) if header.isdev() else (0, 0),
        xattrs=xattrs,
    )
