"""Libraries of a wheel, and what each of them needs: read once of each wheel, before anything is built."""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from graphcrate.artifacts.wheel_archive import WheelArchive
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.sealed import kept
from graphcrate.model.lock import LockedFile, encode
from treeaudit import elf
from treeaudit.errors import FileError

_LIBRARY = re.compile(r"\.so(\.\d+)*$")


class Linked(msgspec.Struct, frozen=True, kw_only=True):
    """The libraries of a wheel: path of each → what it needs (DT_NEEDED); and the names that they go by."""

    needed: Mapping[str, tuple[str, ...]]
    names: frozenset[str]


def known(file: LockedFile, cache: Cache) -> Linked | None:
    """Return the libraries of a wheel that was read before; None of another one."""
    return kept(_record(file, cache), Linked)


def of(file: LockedFile, cache: Cache) -> Linked:
    """Return the libraries of a wheel that the cache has. Raises IntegrityError where it is damaged."""
    return known(file, cache) or _read(file, cache)


def _read(file: LockedFile, cache: Cache) -> Linked:
    needed, names = dict[str, tuple[str, ...]](), set[str]()
    wheel = cache.file(file.sha256, file.name)
    with WheelArchive(wheel) as archive, cache.folder() as folder, (folder / "library").open("w+b") as stream:
        for member in archive.checked_members():
            if _LIBRARY.search(member.name):
                stream.seek(0)
                stream.truncate()
                stream.writelines(archive.chunks(member))
                with contextlib.suppress(FileError):  # no ELF file of ours: the image's audit says what it is
                    binary = elf.read_stream(stream, member.name).binary
                    needed[member.name] = binary.needed
                    names |= {member.name.rpartition("/")[2], binary.soname}
    linked = Linked(needed=needed, names=frozenset(names - {""}))
    cache.keep(_record(file, cache), encode(linked))
    return linked


def _record(file: LockedFile, cache: Cache) -> Path:
    return cache.path("linked", f"{file.sha256}.json")
