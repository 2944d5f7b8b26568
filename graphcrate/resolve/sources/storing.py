"""Files of links into the cache: each is whole and has its hash, or it is not there."""

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.disk.os_errors import explained
from graphcrate.host.net.retry import TRIES
from graphcrate.host.parallel import Advance
from graphcrate.model.command import LOCK_AGAIN
from graphcrate.model.errors import HostError, IntegrityError
from graphcrate.model.limits import SOURCE_FILE, WHEEL_FILE
from graphcrate.model.lock import LockedFile
from graphcrate.resolve.sources.channels import Link, local_path
from graphcrate.resolve.sources.failures import source_name

if TYPE_CHECKING:
    from graphcrate.host.net.http import Client
    from graphcrate.host.progress import Progress


class UnreadableFileError(HostError):
    """A file of a local folder that may not be read."""


def is_stored(file: LockedFile, cache: Cache) -> bool:
    """Return whether the cache has it."""
    return cache.has_file(file.sha256, file.name, file.size)


def store(
    file: LockedFile,
    url: str,
    client: "Client",
    cache: Cache,
    advance: Advance = lambda _: None,
    tries: int = TRIES,
) -> Path:
    """Fetch a file into the cache from this address; `tries`: more of a request that fails.

    Raises IntegrityError, NetworkError, UnreadableFileError, DiskFullError.
    """
    target = cache.file(file.sha256, file.name)
    with cache.exclusively(f"file-{file.sha256}"), cache.guard():
        if is_stored(file, cache):  # another process was faster
            advance(file.size)
        elif url.startswith("file:"):
            stored = store_unhashed(Link(name=file.name, url=url), client, cache)
            if stored != file:
                raise IntegrityError(
                    f"{local_path(url)} has sha256 {stored.sha256} instead of {file.sha256}",
                    cause="The folder has another file under this name than the lock was made with.",
                    next_step=f"lock again with this folder ({LOCK_AGAIN}), or bring the file that was locked",
                )
            advance(file.size)
        else:
            partial = cache.path("partial", file.sha256)
            client.download(url, partial, size=file.size, sha256=file.sha256, advance=advance, tries=tries)
            cache.adopt(partial, target)
    return target


def locked_file(link: Link, client: "Client", cache: Cache, progress: "Progress") -> LockedFile:
    """Return a link's file with its size, which is stated, cached or asked for; fetch it where no hash is stated.

    Raises NetworkError where the server does not give it, or does not say how large it is; for fetching as `store`.
    """
    size = link.size
    if link.url.startswith("file:") and (size is None or not link.sha256):
        return store_unhashed(link, client, cache)
    if link.sha256 and size is None:
        cached = cache.file(link.sha256, link.name)
        is_whole = cached.is_file() and sha256_of(cached) == link.sha256  # a part of it has another size
        size = cached.stat().st_size if is_whole else None
    if size is None:
        size = client.size(link.url)
    if link.sha256:
        return LockedFile(name=link.name, size=size, sha256=link.sha256)
    with progress.task(f"fetching {link.name}, whose page states no sha256", size) as task:
        return store_unhashed(msgspec.structs.replace(link, size=size), client, cache, task.advance)


def store_unhashed(
    link: Link, client: "Client", cache: Cache, advance: Callable[[int], None] = lambda _: None
) -> LockedFile:
    """Fetch a file whose hash no page states and return what it turned out to be. Raises as `store`."""
    with cache.folder() as folder:
        arriving = folder / "file"
        if link.url.startswith("file:"):
            sha256 = _copy(local_path(link.url), arriving)
        else:
            most = WHEEL_FILE if link.name.endswith(".whl") else SOURCE_FILE
            sha256 = client.download(link.url, arriving, size=link.size, sha256=None, most=most, advance=advance)
            if link.name.endswith(".whl") and not zipfile.is_zipfile(arriving):  # a portal's page, to begin with
                raise IntegrityError(f"{source_name(link.url)} gives something else than a wheel as {link.name}")
        file = LockedFile(name=link.name, size=arriving.stat().st_size, sha256=sha256)
        cache.adopt(arriving, cache.file(sha256, link.name))
    return file


def _copy(source: Path, target: Path) -> str:
    """Copy a file of the user's folder and return its sha256. Raises UnreadableFileError.

    A link would let what the user does to the folder later reach the cache.
    """
    try:
        stream = source.open("rb")
    except OSError as error:
        known = explained(error, source)
        assert known is not None, "it has a path"
        raise UnreadableFileError(known.what, cause=known.cause, next_step=known.next_step) from error
    with stream, target.open("wb") as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
        os.fsync(copy.fileno())
    return sha256_of(target)
