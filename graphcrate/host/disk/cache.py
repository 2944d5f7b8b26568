"""The cache folder: content-addressed files, shared by all images and by builds that run at the same time.

Layout below the root (`GRAPHCRATE_CACHE`, else `$XDG_CACHE_HOME/graphcrate`, else `~/.cache/graphcrate`):
`files/<sha256>/<name>` downloads, `blobs/sha256/<hex>` layers, every other folder one stage's records.
A path that exists is whole: files are written under a temporary name, synced, then renamed. What a killed run
left behind is in `tmp/` until the next run finds it unused and removes it.
"""

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import filelock

from graphcrate.host import settings
from graphcrate.host.disk import ownership, waiting
from graphcrate.host.disk.atomic import synced
from graphcrate.host.disk.living import NO_LOCKS, Say, living_folder, remove_abandoned, silent
from graphcrate.host.disk.sealed import sealed
from graphcrate.host.disk.space import DISK_FULL, place_apart, require_room, too_large
from graphcrate.host.disk.trees import discard, remove_tree
from graphcrate.model.command import AGAIN, command
from graphcrate.model.errors import CacheError, DiskFullError, IntegrityError, UsageError
from graphcrate.model.values import is_file_name
from graphcrate.model.words import bytes_of

#: of runs that are at work; all other folders keep what may be made again
WORKING_FOLDERS = frozenset({"tmp", "locks"})
#: large folders → how many names below the root lead to what is removed as a whole
UNITS = {
    "uv": 1,
    **dict.fromkeys(("rootfs", "squashed", "toolkits", "files", "compiled", "unfinished", "built", "trees"), 2),
    **dict.fromkeys(("bases", "blobs", "bytecode"), 3),
}
MOST = "GRAPHCRATE_CACHE_MAX"  #: bytes that the cache may take: 20GB
#: what a run does that has a lock, by what the lock's name begins with
_WORK = {
    "runs": "frees the cache",
    "file": "downloads the same file",
    "layer": "writes the same layer",
    "rootfs": "unpacks the same image",
    "base": "makes the same base",
    "toolkit": "puts the same CUDA toolkit together",
    "built": "builds the same package from source",
    "blob": "pulls the same layer",
    "squashed": "compresses the same layer",
    "wheelhouse": "compiles",
    "podman": "builds with podman",
    "apptainer": "builds with Apptainer",
}
#: what to type for more room
MORE_ROOM = f"see what the cache holds, and free some of it: {command('cache')}"
CACHE_ELSEWHERE = f"GRAPHCRATE_CACHE=/path {AGAIN}"


def default_root(environment: Mapping[str, str]) -> Path:
    """The cache root that this environment asks for. Raises CacheError where there is no folder for it.

    It may begin with another variable, which jobs have: `$SLURM_TMPDIR/graphcrate`.
    """
    if chosen := environment.get("GRAPHCRATE_CACHE"):
        if chosen.startswith("$"):
            name, _, rest = chosen[1:].partition("/")
            if not (folder := environment.get(name.strip("{}"))):
                raise CacheError(
                    f"GRAPHCRATE_CACHE is {chosen}, and ${name} is not set here",
                    cause="Jobs have such a variable, and not at each site.",
                    next_step=f"name a folder: {CACHE_ELSEWHERE}",
                )
            chosen = str(Path(folder, rest))
        return Path(chosen).expanduser().absolute()
    if shared := environment.get("XDG_CACHE_HOME"):
        return Path(shared) / "graphcrate"
    if home := settings.home(environment):
        return home / ".cache" / "graphcrate"
    raise CacheError(
        "there is no folder for the cache: HOME is not set, and this user has no home folder",
        next_step=f"name one: {CACHE_ELSEWHERE}",
    )


def most_bytes(environment: Mapping[str, str]) -> int | None:
    """Return the cache's limit in this environment; None without one. Raises UsageError."""
    if not (given := environment.get(MOST, "")):
        return None
    try:
        return bytes_of(given)
    except ValueError as error:
        raise UsageError(
            f"{MOST} is {given!r}, which is not a number of bytes", next_step=f"export {MOST}=20GB"
        ) from error


class Cache:
    """A cache rooted at one folder. All methods are safe with several processes at once."""

    _say: Say = staticmethod(silent)  #: in worker processes

    def __init__(self, root: Path, most: int | None = None, say: Say = silent, group: int | None = None) -> None:
        """`most`: bytes that it may take, for `cleaning`. `say` hears what no command ends by.

        `group`: the number of the group that it is shared with. Raises CacheError when it cannot be created or
        written, and for one that others may write to.
        """
        self._say = say
        self._lock_mode = 0o644 if group is None else 0o660
        self.root, self.most, self.began = root, most, settings.now()
        self.has_grown = False  #: something large was written by this run, or was about to be
        self._used = set[Path]()
        try:
            self._tmp = root / "tmp"
            self._locks = root / "locks"
            ownership.make_root(root, group)
            self._ownership = ownership.checked(root, group, say)
            if group is not None:  # what one of them makes, others of them go on with
                os.umask(os.umask(0o022) & ~0o070)
            for folder in (self._tmp, self._locks):  # which is never removed
                folder.mkdir(parents=True, exist_ok=True)
            with self.exclusively("runs"):  # see `alone`: who frees the cache is done, or comes later
                self.make_folders()
                remove_abandoned(self._tmp, "run-", self._say)
                self._closing = contextlib.ExitStack()
                self._run = self._closing.enter_context(living_folder(self._tmp, "run-", self._say))
                for folder in (self._tmp, self._run):
                    place_apart(folder)
        except OSError as error:
            raise self._failure(error) from error

    def __getstate__(self) -> dict[str, object]:
        """For worker processes: they use this run's temporary folder, which lives as long as this process."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_closing", "_say")}

    @property
    def own(self) -> Path:
        """This run's temporary folder, which its worker processes share."""
        return self._run

    def make_folders(self) -> None:
        """Make the folders that every run expects. While no other run frees the cache."""
        for folder in (self.root / "files", self.root / "blobs" / "sha256"):
            folder.mkdir(parents=True, exist_ok=True)

    def file(self, sha256: str, name: str) -> Path:
        """The path of the download with this hash, existing or not."""
        return self._below("files", sha256, name)

    def has_file(self, sha256: str, name: str, size: int) -> bool:
        """Return whether that download is there. Its path is its hash, so the size alone is looked at."""
        path = self.file(sha256, name)
        try:
            is_there = path.stat().st_size == size
        except OSError:
            return False
        self.use(path.parent)
        return is_there

    def use(self, path: Path) -> None:
        """Note that this run uses a file or folder, so that `cleaning` keeps it longer than unused ones.

        Of a folder its time of change has that, of a file its time of access: when a layer was written counts too.
        Raises CacheError for one that another user put there.
        """
        if path in self._used:
            return
        with contextlib.suppress(OSError):  # not there yet
            status, now = path.lstat(), int(settings.now() * 1e9)
            self._ownership.require(path, status)
            self._used.add(path)
            os.utime(path, ns=(now, now if path.is_dir() else status.st_mtime_ns))

    def blob(self, digest: str) -> Path:
        """The path of the blob `sha256:<hex>`, existing or not."""
        return self._below("blobs", "sha256", digest.removeprefix("sha256:"))

    def path(self, *parts: str) -> Path:
        """A path below the root; parent folders are created. Raises as `_below`."""
        path = self._below(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if depth := UNITS.get(parts[0]):
            self.use(self.root.joinpath(*parts[:depth]))
        return path

    def _below(self, *parts: str) -> Path:
        """Join names to the root. Raises IntegrityError for one that is no name: hashes and names come from elsewhere.

        `Path.joinpath` takes an absolute path and `..` as what they are, so the file may be any of this user's.
        """
        for part in parts:
            if not is_file_name(part):
                raise IntegrityError(
                    f"{part!r} is not a name that a file of the cache may have",
                    cause="A lock, an index or an image names it as a hash or a file, and it would leave the cache.",
                )
        return self.root.joinpath(*parts)

    def write(self, target: Path, data: bytes) -> None:
        """Write these bytes to `target`, whole or not at all: temporary name in the cache, fsync, rename."""
        with self.folder() as folder:
            part = folder / "part"
            with synced(part) as stream:
                stream.write(data)
            self.adopt(part, target)

    def keep(self, target: Path, data: bytes) -> None:
        """Write a record with its checksum, for `sealed.kept` and `sealed.kept_bytes`."""
        self.write(target, sealed(data))

    def adopt(self, temporary: Path, target: Path) -> None:
        """Rename a finished file or folder from this run's temporary folder to its path in the cache.

        A folder that is there already stays (another run was faster) and the temporary one is removed.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        if temporary.is_dir():
            try:
                temporary.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                remove_tree(temporary)
        else:
            temporary.chmod(0o644)
            temporary.replace(target)

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A temporary folder on the cache's disk, removed at the end if it is still there."""
        with self.guard():
            folder = Path(tempfile.mkdtemp(dir=self._run))
            try:
                yield folder
            finally:
                discard(folder, self._say)

    @contextlib.contextmanager
    def exclusively(self, name: str) -> Iterator[None]:
        """Let one process at a time do `name` (a key without slashes); others wait here, and say so.

        What it begins with, of `_WORK`, says what is done.
        """
        path = self._locks / f"{name}.lock"
        lock: filelock.BaseFileLock = filelock.FileLock(path, mode=self._lock_mode, fallback_to_soft=False)

        def acquired() -> bool:
            try:
                lock.acquire(blocking=False)
            except filelock.Timeout:
                return False
            return True

        try:
            acquired_at_once = acquired()
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            # Under another name: the file of a lock stays when it is free, and here one that is there is held.
            path = path.with_suffix(".held")
            lock = filelock.SoftFileLock(path, mode=self._lock_mode)
            acquired_at_once = acquired()
        if not acquired_at_once:
            waiting.until(acquired, path, _WORK.get(name.partition("-")[0], "does the same"))
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other runs from starting. Raises CacheError while one is at work."""
        with self.exclusively("runs"), self.guard():
            remove_abandoned(self._tmp, "run-", self._say)
            if others := [lock for lock in self._tmp.glob("run-*.lock") if lock.stem != self._run.name]:
                raise CacheError(
                    f"{len(others)} other run{'s' * (len(others) > 1)} of graphcrate use{'s' * (len(others) == 1)} "
                    f"the cache {self.root}",
                    next_step="run the same command again when that has ended",
                )
            yield

    def free_bytes(self) -> int:
        """Room left on the cache's disk for this user."""
        return shutil.disk_usage(self.root).free

    def disk_bytes(self) -> int:
        """Bytes in use on the cache's disk, of the cache and all else."""
        return shutil.disk_usage(self.root).used

    def require(self, needed: int, purpose: str) -> None:
        """Raises DiskFullError unless `needed` bytes are free."""
        self.has_grown = True
        step = f"{MORE_ROOM}; or put it on another disk: {CACHE_ELSEWHERE}"
        require_room(self.root, needed, purpose, free=self.free_bytes(), next_step=step)

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Turn operating system errors on the cache's disk into CacheError and DiskFullError."""
        try:
            yield
        except OSError as error:
            if error.errno in (*DISK_FULL, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOLCK):
                raise self._failure(error) from error
            raise

    def close(self) -> None:
        """Remove this run's temporary folder."""
        self._closing.close()

    def _failure(self, error: OSError) -> CacheError | DiskFullError:
        if error.errno == errno.EFBIG:
            return too_large(f"a file in {self.root}")
        if error.errno in DISK_FULL:
            return DiskFullError(
                f"the disk that holds {self.root} is full, or this user's quota on it",
                next_step=f"{MORE_ROOM}; then the same command goes on where it stopped. "
                f"Or put the cache elsewhere: {CACHE_ELSEWHERE}",
            )
        return CacheError(
            f"the cache folder {self.root} cannot be written: {error.strerror}",
            cause="Its file server gives out no locks (NFS without lockd)."
            if error.errno == errno.ENOLCK
            else "It belongs to another user or is on a read-only file system.",
            next_step=f"choose a folder of your own: {CACHE_ELSEWHERE}",
        )
