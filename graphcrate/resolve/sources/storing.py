"""Files of links into the cache: each is whole and has its hash, or it is not there."""

import hashlib
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from graphcrate.host.disk.atomic import synced
from graphcrate.host.disk.cache import Cache
from graphcrate.host.disk.hashing import sha256_of
from graphcrate.host.disk.os_errors import explained
from graphcrate.host.disk.sealed import kept
from graphcrate.host.parallel import Advance
from graphcrate.model.command import LOCK_AGAIN
from graphcrate.model.errors import HostError, IntegrityError
from graphcrate.model.lock import LockedFile
from graphcrate.resolve.sources.failures import source_name
from graphcrate.resolve.sources.source import Link, local_path
from patienthttp.client import RemoteState
from patienthttp.retry import TRIES

if TYPE_CHECKING:
    from graphcrate.host.net import Client
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
            stored = store_unhashed(Link(name=file.name, url=url), cache)
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
        return store_unhashed(link, cache)
    if not link.sha256:
        return _fetched(link, client, cache, progress)
    if size is None:
        cached = cache.file(link.sha256, link.name)
        is_whole = cached.is_file() and sha256_of(cached) == link.sha256  # a part of it has another size
        size = cached.stat().st_size if is_whole else None
    return LockedFile(name=link.name, size=client.size(link.url) if size is None else size, sha256=link.sha256)


class _Unhashed(msgspec.Struct, frozen=True):
    """A record of a file whose hash no page states, by name and address. `sha256`: once it is whole."""

    state: RemoteState
    sha256: str = ""


def _fetched(link: Link, client: "Client", cache: Cache, progress: "Progress") -> LockedFile:
    """Fetch a file whose hash no page states, once, going on with a part of it; return what it turned out to be.

    Nothing tells whether a part is of the same file but its server, by a validator: without one it counts for nothing.
    Raises as `store`.
    """
    state = client.state(link.url)
    key = hashlib.sha256(f"{link.name} {link.url}".encode()).hexdigest()
    record, partial = cache.path("unhashed", f"{key}.json"), cache.path("partial", key)
    with cache.exclusively(f"file-{key}"), cache.guard():
        before = kept(record, _Unhashed)
        if before is None or before.state != state or not state.validator:
            partial.unlink(missing_ok=True)
        elif before.sha256 and cache.has_file(before.sha256, link.name, state.size):
            return LockedFile(name=link.name, size=state.size, sha256=before.sha256)
        cache.keep(record, msgspec.json.encode(_Unhashed(state)))
        with progress.task(f"fetching {link.name}, whose page states no sha256", state.size) as task:
            same = {"If-Range": state.validator} if state.validator else {}
            sha256 = client.download(
                link.url, partial, size=state.size, sha256=None, headers=same, advance=task.advance
            )
        if link.name.endswith(".whl") and not zipfile.is_zipfile(partial):  # a portal's page, to begin with
            partial.unlink()
            raise IntegrityError(f"{source_name(link.url)} gives something else than a wheel as {link.name}")
        cache.adopt(partial, cache.file(sha256, link.name))
        cache.keep(record, msgspec.json.encode(_Unhashed(state, sha256)))
    return LockedFile(name=link.name, size=state.size, sha256=sha256)


def store_unhashed(link: Link, cache: Cache) -> LockedFile:
    """Copy a file of this machine and return what it turned out to be. Raises as `store`."""
    with cache.folder() as folder:
        arriving = folder / "file"
        sha256 = _copy(local_path(link.url), arriving)
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
    with stream, synced(target) as copy:
        shutil.copyfileobj(stream, copy, 1 << 20)
    return sha256_of(target)
