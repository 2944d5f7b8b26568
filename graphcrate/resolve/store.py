"""Bringing one file into the cache, checked, whatever serves it.

An unfinished download lies in `partial/<sha256>` of the cache, held by one process at a time, and is gone on with by
the next run.
"""

import hashlib
import shlex
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from graphcrate.host.cache import Cache
from graphcrate.model.errors import HostError, IntegrityError, NetworkError
from graphcrate.model.lock import LockedFile

if TYPE_CHECKING:
    from io import BufferedReader

    from graphcrate.host.http import Client
    from graphcrate.resolve.source import Link

CHUNK = 1 << 20


def is_stored(file: LockedFile, cache: Cache) -> bool:
    """Whether the cache has it. Its path is its hash, so the size alone is looked at."""
    try:
        return cache.file(file.sha256, file.name).stat().st_size == file.size
    except OSError:
        return False


def store(file: LockedFile, url: str, client: "Client", cache: Cache, advance: Callable[[int], None]) -> Path:
    """Fetch a file into the cache from this address. Raises IntegrityError, NetworkError, DiskFullError."""
    target = cache.file(file.sha256, file.name)
    with cache.exclusively(f"file-{file.sha256}"), cache.guard():
        if is_stored(file, cache):  # another process was faster
            advance(file.size)
            return target
        if url.startswith("file:"):
            _copy(file, _path(url), cache, advance)
        else:
            partial = cache.path("partial", file.sha256)
            client.download(url, partial, size=file.size, sha256=file.sha256, advance=advance)
            cache.adopt(partial, target)
    return target


def store_unvouched(link: "Link", client: "Client", cache: Cache, advance: Callable[[int], None]) -> LockedFile:
    """Fetch a file whose hash no page states and return what it turned out to be."""
    if link.url.startswith("file:"):
        path = _path(link.url)
        with _opened(path) as stream:
            file = LockedFile(
                name=link.name, size=path.stat().st_size, sha256=hashlib.file_digest(stream, "sha256").hexdigest()
            )
        store(file, link.url, client, cache, advance)
        return file
    with cache.folder() as folder:
        arriving = folder / "file"
        sha256 = client.download(link.url, arriving, size=link.size, sha256=None, advance=advance)
        file = LockedFile(name=link.name, size=arriving.stat().st_size, sha256=sha256)
        cache.adopt(arriving, cache.file(sha256, link.name))
    return file


def _path(url: str) -> Path:
    return Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))


def _copy(file: LockedFile, source: Path, cache: Cache, advance: Callable[[int], None]) -> None:
    """Copy, not link: what the user does to the folder later must not reach the cache."""
    found = hashlib.sha256()
    with _opened(source) as stream, cache.writing(cache.file(file.sha256, file.name)) as target:
        while chunk := stream.read(CHUNK):
            found.update(chunk)
            target.write(chunk)
            advance(len(chunk))
        if found.hexdigest() != file.sha256:
            advance(-target.tell())
            raise IntegrityError(
                f"{source} has sha256 {found.hexdigest()} instead of {file.sha256}",
                cause="The folder has another file under this name than the lock was made with.",
                next_step="lock again with this folder (./build.py lock …), or bring the file that was locked",
            )


def _opened(source: Path) -> "BufferedReader":
    """A file of a person's folder, to read. Raises NetworkError where it is gone, HostError."""
    try:
        return source.open("rb")
    except FileNotFoundError as error:
        raise NetworkError(
            f"{source} is no longer there", next_step="bring it back, or name another folder: WHEELS=/path"
        ) from error
    except OSError as error:
        raise HostError(
            f"{source} cannot be read: {error.strerror}",
            cause="The file, or a folder above it, belongs to another user or is no plain file.",
            next_step=f"ls -l {shlex.quote(str(source))}    (or name another folder: WHEELS=/path)",
        ) from error
